"""The steps of an engine outside of a graph: each takes the state and returns what is news."""

from langchain_ctxwin.agent.step import AgentStep
from langchain_ctxwin.agent.storage import NOWHERE
from langchain_ctxwin.util.work import arun, run


class Steps:
    """Drives one engine's steps; `setup` is what an adapter would know."""

    def __init__(self, engine, **setup):
        self.engine, self.setup = engine, setup

    def step(self, state, place=NOWHERE):
        return AgentStep(
            state=state,
            engine=self.engine,
            **self.setup,
            place=place,
        )

    def check(self, state, place=NOWHERE):
        run((step := self.step(state, place)).check())
        return step.news

    def before(self, state, place=NOWHERE):
        run((step := self.step(state, place)).prepare())
        return step.news

    async def abefore(self, state, place=NOWHERE):
        await arun((step := self.step(state, place)).prepare())
        return step.news

    def summarize(self, state, place=NOWHERE):
        run((step := self.step(state, place)).summarize())
        return step.news

    async def asummarize(self, state, place=NOWHERE):
        await arun((step := self.step(state, place)).summarize())
        return step.news

    def request(self, state):
        return self.step(state).request()
