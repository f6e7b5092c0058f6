"""Turn: a lock for an open file that tasks get in the order of their arrival."""

from __future__ import annotations

import trio
import trio.testing

from topicfs.fusefs.threads.turn import FifoLock


async def test_a_free_turn_is_taken_at_once():
    """Taking a free turn returns without a checkpoint of trio."""
    with trio.testing.assert_no_checkpoints():
        async with FifoLock() as taken:
            assert taken is None


async def test_turns_are_passed_on_in_the_order_of_arrival(nursery: trio.Nursery):
    """Tasks get the turn one at a time in the order of their arrival; a canceled task is skipped."""
    turn, order = FifoLock(), []

    async def take(number: int) -> None:
        async with turn:
            order.append(number)
            await trio.testing.wait_all_tasks_blocked()

    async with turn:
        for number in (1, 2):
            nursery.start_soon(take, number)
            await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(0.01):
            async with turn:
                order.append(0)
        nursery.start_soon(take, 3)
        await trio.testing.wait_all_tasks_blocked()
        assert [] == order
        assert turn.is_taken
    while 3 > len(order) or turn.is_taken:
        await trio.sleep(0.001)
    assert [1, 2, 3] == order
