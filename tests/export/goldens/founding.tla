----------------------------- MODULE sglang_0_5_23_normal_retract_none -----------------------------

\* sglang-0.5.23: loop normal, mode retract, storage none.
\*
\* Written by `checker export --tla`. Counters are natural numbers without a bound: nothing here
\* limits how much is in flight.

EXTENDS Integers

VARIABLES paused, gate_closed, flush_wanted, deferred_pending, last_batch, has_host, late,
          waiting, running, write_through_queued, write_through_submitted,
          write_through_ready, load_back_queued, load_back_submitted, load_back_ready

\* The engine has no such fields; claims speak of them.
VARIABLES update_waiting

write_through_vars == <<write_through_queued, write_through_submitted, write_through_ready>>

load_back_vars == <<load_back_queued, load_back_submitted, load_back_ready>>

vars == <<paused, gate_closed, flush_wanted, deferred_pending, last_batch, has_host,
          update_waiting, late, waiting, running, write_through_queued,
          write_through_submitted, write_through_ready, load_back_queued,
          load_back_submitted, load_back_ready>>

TypeOK ==
    /\ paused \in BOOLEAN
    /\ gate_closed \in BOOLEAN
    /\ flush_wanted \in BOOLEAN
    /\ deferred_pending \in BOOLEAN
    /\ last_batch \in BOOLEAN
    /\ has_host \in BOOLEAN
    /\ update_waiting \in BOOLEAN
    /\ late \in Nat
    /\ waiting \in Nat
    /\ running \in Nat
    /\ write_through_queued \in Nat
    /\ write_through_submitted \in Nat
    /\ write_through_ready \in Nat
    /\ load_back_queued \in Nat
    /\ load_back_submitted \in Nat
    /\ load_back_ready \in Nat

Init ==
    /\ paused = FALSE
    /\ gate_closed = FALSE
    /\ flush_wanted = FALSE
    /\ deferred_pending = FALSE
    /\ last_batch = FALSE
    /\ has_host = FALSE
    /\ update_waiting = FALSE
    /\ late = 0
    /\ waiting = 0
    /\ running = 0
    /\ write_through_queued = 0
    /\ write_through_submitted = 0
    /\ write_through_ready = 0
    /\ load_back_queued = 0
    /\ load_back_submitted = 0
    /\ load_back_ready = 0

FlushGate ==
    /\ running = 0
    /\ ~last_batch
    /\ write_through_queued = 0
    /\ write_through_submitted = 0
    /\ write_through_ready = 0
    /\ load_back_queued = 0
    /\ load_back_submitted = 0
    /\ load_back_ready = 0
    /\ paused \/ waiting = 0

DeferredFlushGate ==
    /\ running = 0
    /\ ~last_batch
    /\ write_through_queued = 0
    /\ write_through_submitted = 0
    /\ write_through_ready = 0
    /\ load_back_queued = 0
    /\ load_back_submitted = 0
    /\ load_back_ready = 0
    /\ waiting = 0

\* client: srt/managers/tokenizer_manager.py:generate_request
Arrive ==
    /\ ~gate_closed
    /\ waiting' = waiting + 1
    /\ UNCHANGED <<paused, gate_closed, flush_wanted, deferred_pending, last_batch, has_host,
                   update_waiting, late, running, write_through_vars, load_back_vars>>

\* client: srt/managers/scheduler.py:process_input_requests
ArriveLate ==
    /\ late > 0
    /\ late' = late - 1
    /\ waiting' = waiting + 1
    /\ UNCHANGED <<paused, gate_closed, flush_wanted, deferred_pending, last_batch, has_host,
                   update_waiting, running, write_through_vars, load_back_vars>>

\* trainer: srt/managers/scheduler.py:pause_generation
Pause ==
    /\ ~gate_closed
    /\ \* requests past the tokenizer's gate
       \E some_late \in Nat :
           /\ paused' = TRUE
           /\ gate_closed' = TRUE
           /\ last_batch' = FALSE
           /\ late' = late + some_late
           /\ waiting' = waiting + running
           /\ running' = 0
    /\ UNCHANGED <<flush_wanted, deferred_pending, has_host, update_waiting,
                   write_through_vars, load_back_vars>>

\* trainer: srt/managers/scheduler.py:continue_generation
Continue ==
    /\ gate_closed
    /\ ~update_waiting
    /\ paused' = FALSE
    /\ gate_closed' = FALSE
    /\ flush_wanted' = FALSE
    /\ UNCHANGED <<deferred_pending, last_batch, has_host, update_waiting, late, waiting,
                   running, write_through_vars, load_back_vars>>

\* scheduler: srt/managers/scheduler.py:event_loop_normal
RunningPass ==
    /\ ~paused
    /\ LET has_host_holds == has_host \/ write_through_ready > 0
       IN
       \* requests admitted
       \E admitted \in (IF waiting <= 0 THEN 0 ELSE 1)..waiting :
       \* admitted requests with a hit in host memory
       \E load_backs \in 0..(IF has_host_holds THEN admitted ELSE 0) :
       \* requests that finish
       \E finished \in 0..(IF running + admitted <= 0 THEN 0 ELSE running + admitted) :
       \* prefixes that enter the tree
       \E inserted \in Nat :
           /\ last_batch' = (running + admitted > 0)
           /\ has_host' = has_host_holds
           /\ waiting' = waiting - admitted
           /\ running' = running + admitted - finished
           /\ write_through_queued' = 0
           /\ write_through_submitted' = write_through_queued
                                         + write_through_submitted
                                         + (IF running + admitted <= 0 THEN 0 ELSE inserted)
           /\ write_through_ready' = 0
           /\ load_back_queued' = 0
           /\ load_back_submitted' = load_back_submitted + load_back_queued + load_backs
           /\ load_back_ready' = 0
    /\ UNCHANGED <<paused, gate_closed, flush_wanted, deferred_pending, update_waiting, late>>

\* scheduler: srt/managers/scheduler.py:event_loop_normal
PausedPass ==
    /\ paused
    /\ UNCHANGED <<paused, gate_closed, flush_wanted, deferred_pending, last_batch, has_host,
                   update_waiting, late, waiting, running, write_through_vars, load_back_vars>>

\* trainer: srt/managers/scheduler.py:flush_cache
FlushGranted ==
    /\ ~deferred_pending
    /\ FlushGate
    /\ flush_wanted' = FALSE
    /\ last_batch' = FALSE
    /\ has_host' = FALSE
    /\ UNCHANGED <<paused, gate_closed, deferred_pending, update_waiting, late, waiting,
                   running, write_through_vars, load_back_vars>>

\* trainer: srt/managers/scheduler.py:flush_cache
FlushRefused ==
    /\ ~deferred_pending
    /\ ~FlushGate
    /\ flush_wanted' = (flush_wanted \/ paused)
    /\ UNCHANGED <<paused, gate_closed, deferred_pending, last_batch, has_host,
                   update_waiting, late, waiting, running, write_through_vars, load_back_vars>>

\* trainer: srt/managers/scheduler_components/flush_wrapper.py:SchedulerFlushWrapper
DeferFlush ==
    /\ ~deferred_pending
    /\ ~DeferredFlushGate
    /\ deferred_pending' = TRUE
    /\ UNCHANGED <<paused, gate_closed, flush_wanted, last_batch, has_host, update_waiting,
                   late, waiting, running, write_through_vars, load_back_vars>>

\* scheduler: srt/managers/scheduler_components/flush_wrapper.py:SchedulerFlushWrapper
DeferredFlushGranted ==
    /\ deferred_pending
    /\ DeferredFlushGate
    /\ flush_wanted' = FALSE
    /\ deferred_pending' = FALSE
    /\ last_batch' = FALSE
    /\ has_host' = FALSE
    /\ UNCHANGED <<paused, gate_closed, update_waiting, late, waiting, running,
                   write_through_vars, load_back_vars>>

\* clock: srt/managers/scheduler_components/flush_wrapper.py:SchedulerFlushWrapper
DeferredFlushTimesOut ==
    /\ deferred_pending
    /\ flush_wanted' = (flush_wanted \/ paused)
    /\ deferred_pending' = FALSE
    /\ UNCHANGED <<paused, gate_closed, last_batch, has_host, update_waiting, late, waiting,
                   running, write_through_vars, load_back_vars>>

\* trainer: srt/managers/scheduler_components/weight_updater.py:flush_cache_after_weight_update
UpdateFlushed ==
    /\ paused
    /\ FlushGate
    /\ flush_wanted' = FALSE
    /\ last_batch' = FALSE
    /\ has_host' = FALSE
    /\ update_waiting' = FALSE
    /\ UNCHANGED <<paused, gate_closed, deferred_pending, late, waiting, running,
                   write_through_vars, load_back_vars>>

\* trainer: srt/managers/scheduler_components/weight_updater.py:flush_cache_after_weight_update
UpdateRefused ==
    /\ paused
    /\ ~FlushGate
    /\ flush_wanted' = (flush_wanted \/ paused)
    /\ UNCHANGED <<paused, gate_closed, deferred_pending, last_batch, has_host,
                   update_waiting, late, waiting, running, write_through_vars, load_back_vars>>

\* device: srt/managers/cache_controller.py:start_writing
DeviceDone_write_through_submitted ==
    /\ write_through_submitted > 0
    /\ write_through_submitted' = write_through_submitted - 1
    /\ write_through_ready' = write_through_ready + 1
    /\ UNCHANGED <<paused, gate_closed, flush_wanted, deferred_pending, last_batch, has_host,
                   update_waiting, late, waiting, running, write_through_queued,
                   load_back_vars>>

\* device: srt/managers/cache_controller.py:start_loading
DeviceDone_load_back_submitted ==
    /\ load_back_submitted > 0
    /\ load_back_submitted' = load_back_submitted - 1
    /\ load_back_ready' = load_back_ready + 1
    /\ UNCHANGED <<paused, gate_closed, flush_wanted, deferred_pending, last_batch, has_host,
                   update_waiting, late, waiting, running, write_through_vars,
                   load_back_queued>>

Next ==
    \/ Arrive
    \/ ArriveLate
    \/ Pause
    \/ Continue
    \/ RunningPass
    \/ PausedPass
    \/ FlushGranted
    \/ FlushRefused
    \/ DeferFlush
    \/ DeferredFlushGranted
    \/ DeferredFlushTimesOut
    \/ UpdateFlushed
    \/ UpdateRefused
    \/ DeviceDone_write_through_submitted
    \/ DeviceDone_load_back_submitted

Fairness ==
    /\ WF_vars(RunningPass \/ PausedPass)
    /\ WF_vars(DeferredFlushGranted)
    /\ WF_vars(DeferredFlushTimesOut)
    /\ WF_vars(DeviceDone_write_through_submitted)
    /\ WF_vars(DeviceDone_load_back_submitted)

Spec == Init /\ [][Next]_vars /\ Fairness

\* paused-flush-succeeds: paused by retract and a flush wanted ~> the flush gate opens, or the
\* engine resumes; and once open it stays open until new work arrives.
PausedFlushSucceeds_1 ==
    (paused /\ flush_wanted) ~> (FlushGate \/ ~paused)

PausedFlushSucceeds_2 ==
    [][(FlushGate /\ paused /\ paused') => FlushGate']_vars

PausedFlushSucceeds ==
    /\ PausedFlushSucceeds_1
    /\ PausedFlushSucceeds_2

====================================================================================================
