"""Pictures and files of a conversation: in a store once they left the view, back in the state when shown again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langchain_ctxwin.core.media import ALL, apart, digests_in, filled
from langchain_ctxwin.engine import settings_of
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.util.work import Work

if TYPE_CHECKING:
    from langchain_ctxwin.agent.step import AgentStep

NO_STORE = (
    'media="store", and this run has no store: compile the graph with store=, such as InMemoryStore() or '
    'PostgresStore, or set ContextConfig(media="state")'
)


def placing_media(step: AgentStep) -> Work[None]:
    """Move the data of messages that left the view to the store, and bring back those that are shown again.

    A message is replaced in the state by one of the same id. What the store does not take stays in the state, and what
    it does not have is shown as a line.

    Raises:
        ConfigError: data are to be in a store, and the run has none.
    """
    window, place = step.window, step.setup.place
    is_apart, store = settings_of(window).media == "store", place.media
    if is_apart and place.thread and store is None:
        raise ConfigError(NO_STORE)
    messages, media = window.parts.messages, window.parts.history.media
    if store is None or not media:
        return
    state_messages = {message.id: message for message in step.state_messages}
    in_view = window.parts.media_in(window.view)
    visible = [messages[index] for index, gone in in_view.items() if gone < ALL]
    if is_apart:
        others = {messages[index].id for index in media} - {one.id for one in visible}
        hidden_data = {
            key: apart(state_messages[key])[1] for key in others & state_messages.keys()
        }
        data = {
            digest: text
            for texts in hidden_data.values()
            for digest, text in texts.items()
        }
        if data and (yield from store.putting(data)):
            gone = {key for key, texts in hidden_data.items() if texts}
            step.rewrite(gone, lambda message: apart(message)[0])
    if digests := frozenset[str]().union(*map(digests_in, visible)):
        stored_data = yield from store.getting(digests)
        back = {one.id for one in visible if digests_in(one) & stored_data.keys()}
        step.rewrite(back, lambda message: filled(message, stored_data))
