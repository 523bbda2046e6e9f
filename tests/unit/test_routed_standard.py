"""Does the routed chat model pass LangChain's own suite?"""

from collections.abc import Callable

import pytest
from langchain_tests.unit_tests import ChatModelUnitTests

from langchain_ctxwin.routing import RoutedChatModel
from support.routing import router, scripted


@pytest.fixture
def benchmark() -> Callable[[Callable[[], None]], None]:
    """Run once what the suite would time: nothing here asserts on time."""
    return lambda work: work()


class TestRoutedChatModel(ChatModelUnitTests):
    """Two candidates of different windows behind one model."""

    @property
    def chat_model_class(self) -> type[RoutedChatModel]:
        return RoutedChatModel

    @property
    def chat_model_params(self) -> dict:
        return {"router": router(scripted("small", 8_192), scripted("large", 128_000))}
