/* The founding case for spin: pause(retract), a flush that is wanted, and what is in flight (loop normal, file storage).
 *
 * Hand-written after spec/protocol.py, spec/primitives.py and spec/profiles/sglang-0.5.23.toml, action for action, for
 * the variables on which `paused-flush-succeeds` depends. bench/peer_model.py counts the reachable states of
 * this model and of the spec under the same bounds; the counts are equal.
 *
 * What differs from the spec, each in spin's favour:
 *   - at most N entries in flight (lookups that wait for a retry included) and REQUESTS requests: spin needs a bound;
 *   - the budget of retries is left out (the spec's retry_attempts = 0): with it there are only more states;
 *   - gate_closed is left out: in mode retract it always equals `paused`;
 *   - wt_queued and lb_queued are 0 between two passes, as in the spec, and cost no state.
 *
 * Fairness: spin -f is weak fairness of each process, so each weakly fair action (or unit) of the spec is a process of
 * its own. Clients and trainer are not fair: their process may always skip.
 *
 * -DN=4 the bound; -DREAP the remedy `reap-while-paused`.
 */
#ifndef N
#define N 2
#endif
#ifndef REQUESTS
#define REQUESTS 2
#endif

bool paused, wanted, deferred, last_batch;
byte late, waiting, running;
byte wt_queued, wt_submitted, wt_ready;
byte lb_queued, lb_submitted, lb_ready;
byte bk_queued, bk_ready;
byte pf_query, pf_hit, pf_loading, pf_done, pf_retry;

#define WRITE_THROUGH (wt_queued + wt_submitted + wt_ready)
#define LOAD_BACK (lb_queued + lb_submitted + lb_ready)
#define BACKUP (bk_queued + bk_ready)
#define PREFETCH (pf_query + pf_hit + pf_loading + pf_done)
#define IN_FLIGHT (WRITE_THROUGH + LOAD_BACK + BACKUP + PREFETCH)
#define ROOM (N - IN_FLIGHT - pf_retry)
#define PLACES (REQUESTS - late - waiting - running)
#define MIN(a, b) ((a) < (b) -> (a) : (b))

/* Scheduler.is_fully_idle, for the immediate and for the deferred flush. */
#define NOTHING_RUNS (running == 0 && !last_batch && IN_FLIGHT == 0)
#define gate_open (NOTHING_RUNS && (paused || waiting == 0))
#define deferred_gate_open (NOTHING_RUNS && waiting == 0)

/* The environment picks a number. */
#define CHOOSE(k, low, high) k = low; do :: k < (high) -> k++ :: break od; skip /* spin allows no jump into a d_step */

/* flush_cache, granted. */
inline reset_caches() {
    wanted = false; last_batch = false; pf_retry = 0
}

/* _add_request_to_queue: with 256 or more uncached tokens, storage is looked up. */
inline queue_one() {
    if
    :: true
    :: ROOM > 0 -> pf_query++
    fi;
    waiting++
}

/* check_hicache_events */
inline reap(k) {
    d_step {
        bk_ready = 0;
        bk_queued = bk_queued + wt_ready; wt_ready = 0;
        wt_submitted = wt_submitted + wt_queued; wt_queued = 0;
        lb_ready = 0;
        pf_done = 0
    }
    CHOOSE(k, 0, pf_hit); /* lookups that read on */
    d_step { pf_loading = pf_loading + k; pf_hit = pf_hit - k }
    CHOOSE(k, 0, pf_hit); /* revoked lookups to retry */
    d_step { pf_retry = pf_retry + k; pf_hit = 0; k = 0 }
}

inline retry(k) {
    CHOOSE(k, MIN(pf_retry, 1), pf_retry);
    d_step { pf_retry = pf_retry - k; pf_query = pf_query + k; k = 0 }
}

inline schedule(k, admitted) {
    CHOOSE(admitted, MIN(waiting, 1), waiting);
    CHOOSE(k, 0, pf_query); /* cut off at admission */
    pf_query = pf_query - k;
    CHOOSE(k, 0, pf_loading);
    pf_loading = pf_loading - k;
    CHOOSE(k, 0, MIN(admitted, ROOM)); /* admitted requests with a hit in host memory */
    d_step {
        lb_queued = lb_queued + k;
        waiting = waiting - admitted; running = running + admitted;
        k = 0; admitted = 0
    }
}

inline launch() {
    d_step { lb_submitted = lb_submitted + lb_queued; lb_queued = 0; last_batch = (running > 0) }
}

inline process(k) {
    if
    :: running > 0 ->
        CHOOSE(k, 0, ROOM); /* prefixes that enter the tree; they are handed to the device in the same pass */
        d_step { wt_submitted = wt_submitted + wt_queued + k; wt_queued = 0 }
        CHOOSE(k, 0, running); /* requests that finish */
        d_step { running = running - k; k = 0 }
    :: else
    fi
}

/* event_loop_normal */
active proctype EventLoop() {
    byte k, admitted;
    do
    :: atomic { !paused -> reap(k); retry(k); schedule(k, admitted); launch(); process(k) }
#ifdef REAP
    :: atomic { paused -> reap(k) }
#else
    :: paused /* it records idle or active, which nothing here reads */
#endif
    od
}

active proctype WriteThrough() { /* the device */
    do :: atomic { wt_submitted > 0 -> wt_submitted--; wt_ready++ } od
}

active proctype LoadBack() { /* the device */
    do :: atomic { lb_submitted > 0 -> lb_submitted--; lb_ready++ } od
}

active proctype Backup() { /* the storage */
    do :: atomic { bk_queued > 0 -> bk_queued--; bk_ready++ } od
}

active proctype Lookup() { /* the storage */
    do :: atomic { pf_query > 0 -> pf_query--; pf_hit++ } od
}

active proctype Read() { /* the storage */
    do :: atomic { pf_loading > 0 -> pf_loading--; pf_done++ } od
}

active proctype DeferredFlushGranted() {
    do :: atomic { deferred && deferred_gate_open -> deferred = false; reset_caches() } od
}

active proctype DeferredFlushTimesOut() { /* the clock */
    do :: atomic { deferred -> deferred = false; wanted = wanted || paused } od
}

/* Clients and trainer: nothing obliges them, so they may skip for ever. */
active proctype Outside() {
    byte k;
    do
    :: atomic { !paused && PLACES > 0 -> queue_one() } /* Arrive */
    :: atomic { late > 0 -> late--; queue_one() } /* ArriveLate */
    :: atomic { !paused -> /* Pause, mode retract */
        CHOOSE(k, 0, PLACES);
        late = late + k;
        paused = true;
        CHOOSE(k, 0, MIN(running, ROOM)); /* retracted requests that look up storage again */
        d_step { pf_query = pf_query + k; k = 0; waiting = waiting + running; running = 0; last_batch = false }
      }
    :: atomic { paused -> paused = false; wanted = false } /* Continue */
    :: atomic { !deferred && gate_open -> reset_caches() } /* FlushGranted */
    :: atomic { !deferred && !gate_open -> wanted = wanted || paused } /* FlushRefused */
    :: atomic { !deferred && !deferred_gate_open -> deferred = true } /* DeferFlush */
    :: atomic { paused && gate_open -> reset_caches() } /* UpdateFlushed */
    :: atomic { paused && !gate_open -> wanted = true } /* UpdateRefused */
    :: paused || !paused /* skip: spin rejects a plain `true` here */
    od
}

ltl paused_flush_succeeds { [] ((paused && wanted) -> <> (gate_open || !paused)) }
