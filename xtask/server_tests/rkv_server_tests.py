"""Runs upstream's server tests without fetching anything.

Stands in for upstream's conftest.py, which fetches every model before the first test. The preset that most tests use gets
a local model; a test that needs another one is skipped when it starts its server, and the tests listed in not_run.txt are
skipped with the reason that stands there.
"""

import os
import sys
import types

import pytest


def refuse_download(url, *args, **kwargs):
    pytest.skip(f"needs a file that is not here: {url}")


# Upstream's download helpers use this module.
sys.modules["wget"] = types.ModuleType("wget")
sys.modules["wget"].download = refuse_download

import utils  # noqa: E402  (upstream's, in the folder that pytest runs in)

MODEL = os.environ["RKV_MODEL"]
NOT_RUN = os.environ["RKV_NOT_RUN"]

# Tests run side by side, each worker with ports of its own.
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
os.environ["PORT"] = str(int(os.environ["RKV_PORT"]) + 10 * int(WORKER.removeprefix("gw")))


def read_not_run():
    reasons = {}
    with open(NOT_RUN, encoding="utf-8") as file:
        for line in file:
            name, _, reason = line.partition("\t")
            if line.strip() and not line.startswith("#"):
                reasons[name] = reason.strip()
    return reasons


def local(preset):
    """The preset with a model that is here, or with one that skips the test when it is started."""

    def make():
        server = preset()
        if server.model_hf_repo is None:
            return server
        if preset.__name__ == "tinyllama2":
            server.model_hf_repo = None
            server.model_hf_file = None
            server.model_file = MODEL
        else:
            why = f"needs a model that is not here: {server.model_hf_repo}"
            server.start = lambda *args, **kwargs: pytest.skip(why)
        return server

    return staticmethod(make)


# A machine with other work is slow, not wrong.
PATIENCE_SECONDS = 600
utils.ServerProcess.start.__defaults__ = (PATIENCE_SECONDS,)

for name, method in list(vars(utils.ServerPreset).items()):
    if isinstance(method, staticmethod) and name != "load_all":
        setattr(utils.ServerPreset, name, local(method.__func__))


def pytest_collection_modifyitems(items):
    reasons = read_not_run()
    unused = set(reasons)
    for item in items:
        if hasattr(item.module, "TIMEOUT_HTTP_REQUEST"):
            item.module.TIMEOUT_HTTP_REQUEST = PATIENCE_SECONDS
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="needs a large model that is not here"))
        base = item.nodeid.split("[")[0]
        for key in (item.nodeid, base, base.split("::")[0]):
            if key in reasons:
                item.add_marker(pytest.mark.skip(reason=reasons[key]))
                unused.discard(key)
    if unused:
        raise pytest.UsageError("not_run.txt names tests that do not exist: " + ", ".join(sorted(unused)))


@pytest.fixture(autouse=True)
def stop_server_after_each_test():
    yield
    for server in set(utils.server_instances):
        server.stop()
