"""A broker that waits asks its peers again and again, with growing pauses, until one answers."""

from __future__ import annotations

import asyncio

from server.client.pauses import Pacing, Pauses
from server.standby.peer_answers import Peer, PeerFound, PeerLost
from server.standby.peer_wait import PeerWait

LOST: list[Peer] = [PeerLost(address="b:1", reason="no answer")]
FOUND: list[Peer] = [PeerFound(address="b:1", term=3, leads=True)]


def no_time() -> Pauses:
    pacing = Pacing(first_s=0.0, max_s=0.0, least_share=1.0, most_share=1.0)
    return Pauses(pacing)


async def test_it_tells_each_failure_and_ends_with_the_first_answer() -> None:
    answers, told, answered = [LOST, LOST, FOUND, LOST], list[list[Peer]](), asyncio.Event()

    async def ask() -> list[Peer]:
        return answers.pop(0)

    wait = PeerWait(ask, lost=told.append, answered=answered.set, pauses=no_time())
    await asyncio.wait_for(answered.wait(), 60)
    await wait.stop()

    assert told == [LOST, LOST]
    assert answers == [LOST]


async def test_an_unexpected_failure_does_not_end_it() -> None:
    answers: list[list[Peer] | Exception] = [ZeroDivisionError("a mistake of ours"), FOUND]
    answered = asyncio.Event()

    async def ask() -> list[Peer]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    wait = PeerWait(ask, lost=lambda _: None, answered=answered.set, pauses=no_time())
    await asyncio.wait_for(answered.wait(), 60)
    await wait.stop()


async def test_a_stop_ends_it_in_the_middle_of_a_question() -> None:
    asked = asyncio.Event()

    async def ask() -> list[Peer]:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    wait = PeerWait(ask, lost=lambda _: None, answered=lambda: None, pauses=no_time())
    await asyncio.wait_for(asked.wait(), 60)

    await asyncio.wait_for(wait.stop(), 60)
