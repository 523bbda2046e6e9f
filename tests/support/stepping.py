"""The steps of an engine outside of a graph: each takes the state and returns what is news."""

from langchain_ctxwin.agent.step import NOWHERE, AgentStep, CallSetup, Flow
from langchain_ctxwin.util import arun, run


class Steps:
    """Drives one engine's steps; `call` is what an adapter would know."""

    def __init__(self, engine, **call):
        self.engine, self.call = engine, call
        self.flow = Flow(engine)

    def step(self, state, place=NOWHERE):
        return AgentStep(self.flow, state, CallSetup(**self.call, place=place))

    def check(self, state, place=NOWHERE):
        run(self.flow.check(step := self.step(state, place)))
        return step.news

    def before(self, state, place=NOWHERE):
        run(self.flow.prepare(step := self.step(state, place)))
        return step.news

    async def abefore(self, state, place=NOWHERE):
        await arun(self.flow.prepare(step := self.step(state, place)))
        return step.news

    def summarize(self, state, place=NOWHERE):
        run(self.flow.summarize(step := self.step(state, place)))
        return step.news

    async def asummarize(self, state, place=NOWHERE):
        await arun(self.flow.summarize(step := self.step(state, place)))
        return step.news

    def request(self, state):
        return self.flow.request(self.step(state))
