"""Sources of model facts for tests: what they state, how they fail, when they answer."""

import threading

from langchain_ctxwin import ModelInfo
from langchain_ctxwin.models.sources import WRITER


def wait_for_writers():
    """Wait until what was learned is in its file."""
    for thread in threading.enumerate():
        if thread.name == WRITER:
            thread.join()


class ListSource:
    """States the given models; what is in `failing` is raised instead, and `fetched` counts the questions."""

    def __init__(self, *models, name="api", tier="provider", failing=None):
        self.models = list(models)
        self.name = name
        self.tier = tier
        self.failing = failing
        self.fetched = []

    def fetch(self, name):
        self.fetched.append(name)
        if self.failing is not None:
            raise self.failing
        return [info for info in self.models if name is None or info.name == name]


class HeldSource(ListSource):
    """Answers when `released` is set, which `held` must ask for before the test ends."""

    def __init__(self, *models, **options):
        super().__init__(*models, **options)
        self.released = threading.Event()
        self.asked = threading.Event()

    def fetch(self, name):
        self.asked.set()
        self.released.wait()
        return super().fetch(name)


def model(name="nova-1", provider="acme", context_window=8192, **facts):
    return ModelInfo(
        name=name, provider=provider, context_window=context_window, **facts
    )
