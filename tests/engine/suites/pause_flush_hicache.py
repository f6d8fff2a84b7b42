"""Tests as SGLang's repository writes them: a server in setUpClass, its kits, requests, plain assertions.

Nothing here knows of Quiesce. test_pytest_plugin.py runs this file under the plugin.
"""

import time
import unittest
from concurrent.futures import ThreadPoolExecutor

import requests
from sglang.srt.utils import kill_process_tree
from sglang.test.kits.pause_generation_kit import PauseResumeInPlaceMixin
from sglang.test.test_utils import (
    DEFAULT_SMALL_MODEL_NAME_FOR_TEST,
    CustomTestCase,
    find_available_port,
    popen_launch_server,
    try_cached_model,
)

PROMPT = [(7 * i + 3) % 500 + 3 for i in range(600)]


class TestPauseFlushHiCache(PauseResumeInPlaceMixin, CustomTestCase):
    # Sized for a CPU.
    pause_num_requests = 4
    pause_max_new_tokens = 600
    pause_duration = 1
    pause_ignore_eos = True

    @classmethod
    def setUpClass(cls):
        cls.model = try_cached_model(DEFAULT_SMALL_MODEL_NAME_FOR_TEST)
        cls.base_url = f"http://127.0.0.1:{find_available_port(20000)}"
        cls.process = popen_launch_server(
            cls.model,
            cls.base_url,
            timeout=480,
            other_args=[
                "--enable-hierarchical-cache",
                "--hicache-ratio", "4.0",
                "--hicache-write-policy", "write_through",
                "--hicache-io-backend", "direct",
                "--hicache-mem-layout", "layer_first",
                "--page-size", "16",
                "--max-total-tokens", "4096",
                "--mem-fraction-static", "0.3",
                "--attention-backend", "torch_native",
                "--dtype", "float32",
                "--disable-cuda-graph",
                "--disable-overlap-schedule",
                "--skip-server-warmup",
                "--enable-cache-report",
            ],
        )  # fmt: skip

    @classmethod
    def tearDownClass(cls):
        kill_process_tree(cls.process.pid)

    def post(self, path, **body):
        return requests.post(self.base_url + path, json=body, timeout=90)

    def generate(self, tokens=16):
        sampling_params = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}
        response = self.post("/generate", input_ids=PROMPT, sampling_params=sampling_params)
        self.assertEqual(response.status_code, 200)
        return response.json()

    def flush_cache(self):
        # The caches of an engine that still works cannot be flushed at once.
        for _ in range(100):
            if self.post("/flush_cache").status_code == 200:
                return
            time.sleep(0.1)
        self.fail("flush_cache does not succeed")

    def test_hicache_hit(self):
        self.flush_cache()
        first = self.generate()
        second = self.generate()
        self.assertEqual(first["meta_info"]["cached_tokens"], 0)
        self.assertGreater(second["meta_info"]["cached_tokens"], 500)
        self.assertEqual(first["output_ids"], second["output_ids"])
        self.flush_cache()
        self.assertEqual(self.generate()["meta_info"]["cached_tokens"], 0)

    def test_pause_retract_completes(self):
        self.flush_cache()
        with ThreadPoolExecutor(1) as executor:
            future = executor.submit(self.generate, 400)
            time.sleep(1)
            self.post("/pause_generation", mode="retract").raise_for_status()
            try:
                # Frees what it can; whether it succeeds is not what this test is about.
                self.post("/flush_cache")
                self.assertFalse(future.done())
            finally:
                self.post("/continue_generation").raise_for_status()
            self.assertEqual(len(future.result(timeout=90)["output_ids"]), 400)

    def test_update_weights_while_paused(self):
        self.flush_cache()
        self.generate()
        time.sleep(0.5)
        self.post("/pause_generation", mode="retract").raise_for_status()
        try:
            response = self.post("/update_weights_from_disk", model_path=self.model, flush_cache=True)
            self.assertTrue(response.json()["success"], response.text)
        finally:
            self.post("/continue_generation").raise_for_status()
        self.assertEqual(self.generate()["meta_info"]["cached_tokens"], 0)


if __name__ == "__main__":
    unittest.main()
