"""Planted faults in clients' records are found, each under its name."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from legato.drill.checker import Finding, judge_records
from legato.drill.letters import DeadLetter
from legato.drill.records import (
    REFUSED,
    SENDING,
    STORED,
    UNSURE,
    Consuming,
    Identity,
    Producing,
    RecordWriter,
    SentLine,
    read_records,
)


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """Messages 1, 2 and 3 of the producer `p` were stored; a consumer received and acknowledged them."""
    send(tmp_path, {STORED: [1, 2, 3]})
    receive(tmp_path, [1, 2, 3])
    return tmp_path


def send(records: Path, outcomes: dict[str, Sequence[int]], *, numbered: bool = True) -> None:
    with RecordWriter(records, "p", Producing("p", "q", numbered)) as record:
        for outcome, numbers in outcomes.items():
            record.sent(outcome, numbers)


def receive(
    records: Path, numbers: Sequence[int], *, redelivered: bool = False, done: bool = True, told: bool = True
) -> None:
    with RecordWriter(records, "c", Consuming("q", "q", told)) as record:
        for number in numbers:
            record.seen(Identity("p", number), redelivered)
        if done and told:
            record.done([Identity("p", number) for number in numbers])


def judge(records: Path, dead: frozenset[DeadLetter] = frozenset()) -> Finding:
    (finding,) = judge_records(records, dead)
    return finding


def test_a_clean_record_holds(records: Path) -> None:
    finding = judge(records)
    assert finding.holds
    assert (finding.sent, finding.received) == (3, 3)


def test_a_confirmed_message_that_nobody_received_is_lost(records: Path) -> None:
    send(records, {STORED: [4]})
    finding = judge(records)
    assert finding.lost == 1
    assert "message 4 of p in q" in finding.examples[0]


def test_a_message_of_a_rolled_back_transaction_that_never_comes_again_is_lost(records: Path) -> None:
    send(records, {STORED: [4]})
    receive(records, [4], done=False)
    assert judge(records).lost == 1


def test_a_message_whose_acknowledgement_may_have_succeeded_is_not_lost(records: Path) -> None:
    send(records, {STORED: [4]})
    receive(records, [4], done=False)
    with RecordWriter(records, "c", Consuming("q", "q")) as record:
        record.done([Identity("p", 4)], surely=False)
    assert judge(records).holds


def subscribe(records: Path, flow: str, subscription: str, *numbers: int) -> None:
    """Messages 39 and 40 are stored in a flow, and a subscription of it is done with some of them."""
    with RecordWriter(records, "p", Producing("p", flow)) as record:
        record.sent(STORED, [39, 40])
    with RecordWriter(records, subscription.replace("/", "-"), Consuming(subscription, flow)) as record:
        for number in numbers:
            record.seen(Identity("p", number), redelivered=False)
            record.done([Identity("p", number)])


PICKY = "drill.7.picky"


def test_what_the_drill_has_die_is_not_lost(tmp_path: Path) -> None:
    subscribe(tmp_path, PICKY, PICKY, 39)
    finding = judge(tmp_path, frozenset({DeadLetter(PICKY, PICKY, Identity("p", 40))}))
    assert finding.holds
    assert (finding.dead_lettered, finding.died) == (1, 0)


@pytest.mark.parametrize("flow", [PICKY, "drill.7.transacted"])
def test_a_healthy_message_that_dies_is_a_complaint_that_names_it(flow: str, tmp_path: Path) -> None:
    subscribe(tmp_path, flow, flow, 40)
    finding = judge(tmp_path, frozenset({DeadLetter(flow, flow, Identity("p", 39), "maximum deliveries")}))
    assert not finding.holds
    assert (finding.died, finding.lost, finding.dead_lettered) == (1, 0, 0)
    assert f"message 39 of p in {flow} is a dead letter (maximum deliveries)" in finding.examples[0]


def test_a_number_that_is_to_die_is_so_in_the_picky_flow_only(tmp_path: Path) -> None:
    subscribe(tmp_path, "drill.7.auto", "drill.7.auto", 39)
    finding = judge(tmp_path, frozenset({DeadLetter("drill.7.auto", "drill.7.auto", Identity("p", 40))}))
    assert finding.died == 1


def test_a_message_that_was_received_and_is_a_dead_letter_too_has_died(records: Path) -> None:
    assert judge(records, frozenset({DeadLetter("q", "q", Identity("p", 2))})).died == 1


def test_a_letter_of_one_subscription_excuses_no_loss_in_another(tmp_path: Path) -> None:
    subscribe(tmp_path, "t", "t/alone", 40)
    subscribe(tmp_path, "t", "t/together", 40)
    findings = judge_records(tmp_path, frozenset({DeadLetter("t/alone", "t", Identity("p", 39))}))
    assert {each.subscription: (each.died, each.lost) for each in findings} == {"t/alone": (1, 0), "t/together": (0, 1)}


def test_a_letter_of_a_queue_that_nobody_has_records_of_is_a_complaint_too(records: Path) -> None:
    letters = frozenset({DeadLetter("q.2", "q.2", None), DeadLetter("q.2", "q.2", Identity("p", 1))})
    clean, finding = judge_records(records, letters)
    assert clean.holds
    assert (finding.subscription, finding.died) == ("q.2", 2)
    assert any("a message that is no producer's in q.2" in example for example in finding.examples)


def test_what_dies_at_the_beginning_of_its_way_is_not_lost_at_the_end_as_well(tmp_path: Path) -> None:
    subscribe(tmp_path, "flows", "flows/end-to-end", 40)
    findings = judge_records(tmp_path, frozenset({DeadLetter("flows", "flows", Identity("p", 39))}))
    assert {each.subscription: (each.died, each.lost) for each in findings} == {
        "flows/end-to-end": (0, 0),
        "flows": (1, 0),
    }


def test_a_message_that_was_acknowledged_twice_is_done_twice(records: Path) -> None:
    receive(records, [2], redelivered=True)
    finding = judge(records)
    assert (finding.duplicated, finding.wrong_flags, finding.again) == (1, 0, 1)


def test_a_message_that_comes_again_without_saying_so_has_a_wrong_flag(records: Path) -> None:
    receive(records, [2], done=False)
    assert judge(records).wrong_flags == 1


def test_a_message_that_comes_again_and_says_so_is_fine(records: Path) -> None:
    receive(records, [2], redelivered=True, done=False)
    finding = judge(records)
    assert finding.holds
    assert finding.again == 1


def test_a_refused_message_that_comes_all_the_same_was_falsely_told(records: Path) -> None:
    send(records, {REFUSED: [4]})
    receive(records, [4])
    assert judge(records).falsely_told == 1


def test_a_message_that_nobody_sent_was_falsely_told(records: Path) -> None:
    receive(records, [9])
    assert judge(records).falsely_told == 1


def test_a_send_of_unknown_outcome_may_come_or_not(records: Path) -> None:
    send(records, {UNSURE: [4, 5]})
    receive(records, [4])
    assert judge(records).holds


def test_a_producer_that_does_not_number_its_messages_may_send_them_twice(tmp_path: Path) -> None:
    send(tmp_path, {STORED: [1]}, numbered=False)
    receive(tmp_path, [1])
    receive(tmp_path, [1])
    assert judge(tmp_path).holds


def test_what_a_client_was_about_to_write_when_it_died_is_left_out(records: Path) -> None:
    with (records / "c.records").open("a") as file:
        file.write("seen p 3")
    assert judge(records).holds


def test_what_a_client_that_was_killed_tried_is_not_lost(records: Path) -> None:
    send(records, {STORED: [4]})
    receive(records, [4], done=False)
    assert judge(records).lost == 1
    with RecordWriter(records, "c", Consuming("q", "q")) as record:
        record.trying([Identity("p", 4)])
    assert judge(records).holds
    with RecordWriter(records, "c", Consuming("q", "q")) as record:
        record.seen(Identity("p", 4), redelivered=True)
        record.trying([Identity("p", 4)])
        record.done([Identity("p", 4)])
    finding = judge(records)
    assert finding.holds
    assert finding.again == 1


def test_what_was_tried_and_rolled_back_and_does_not_come_again_is_lost(records: Path) -> None:
    send(records, {STORED: [4]})
    receive(records, [4], done=False)
    with RecordWriter(records, "c", Consuming("q", "q")) as record:
        record.trying([Identity("p", 4)])
        record.undone([Identity("p", 4)])
    assert judge(records).lost == 1


def test_what_a_producer_that_was_killed_was_about_to_send_may_come_or_not(records: Path) -> None:
    send(records, {SENDING: [4, 5]})
    receive(records, [4])
    assert judge(records).holds


def test_a_client_that_is_killed_in_receive_takes_one_message_along_if_that_acknowledges(tmp_path: Path) -> None:
    send(tmp_path, {STORED: [1, 2, 3]})
    head = Consuming("q", "q", told=False, takes_along=True)
    with RecordWriter(tmp_path, "c", head) as record:
        record.seen(Identity("p", 1), redelivered=False)
    assert judge(tmp_path).lost == 2
    with RecordWriter(tmp_path, "c", head) as record:
        record.seen(Identity("p", 3), redelivered=False)
    finding = judge(tmp_path)
    assert (finding.lost, finding.taken_along) == (0, 1)


def test_a_loss_is_forgiven_only_if_the_killed_client_was_to_be_given_that_message_next(tmp_path: Path) -> None:
    send(tmp_path, {STORED: [1, 2, 3, 4, 5, 6]})
    head = Consuming("q", "q", told=False, takes_along=True)
    with RecordWriter(tmp_path, "c", head) as record:
        record.seen(Identity("p", 1), redelivered=False)
    with RecordWriter(tmp_path, "c", head) as record:
        for number in (2, 3, 5, 6):
            record.seen(Identity("p", number), redelivered=False)
    finding = judge(tmp_path)
    assert (finding.lost, finding.taken_along) == (1, 0), "killed after 1, and 4 is lost"
    assert "message 4 of p" in finding.examples[0]


def test_a_client_that_is_killed_twice_before_it_is_given_anything_takes_two_along(tmp_path: Path) -> None:
    send(tmp_path, {STORED: [1, 2, 3]})
    head = Consuming("q", "q", told=False, takes_along=True)
    for _ in range(2):
        RecordWriter(tmp_path, "c", head).__exit__(None, None, None)
    with RecordWriter(tmp_path, "c", head) as record:
        record.seen(Identity("p", 3), redelivered=False)
    finding = judge(tmp_path)
    assert (finding.lost, finding.taken_along) == (0, 2)


def test_a_client_goes_on_from_the_number_that_it_had(tmp_path: Path) -> None:
    send(tmp_path, {SENDING: [1, 2, 7], STORED: [1]})
    with RecordWriter(tmp_path, "p", Producing("p", "q")) as record:
        assert record.last_number == 7


def test_a_line_that_was_cut_off_in_an_earlier_life_is_left_out(tmp_path: Path) -> None:
    send(tmp_path, {STORED: [1]})
    with (tmp_path / "p.records").open("a") as file:
        file.write("stored 12")
    send(tmp_path, {STORED: [2]})
    lines = list(read_records(tmp_path / "p.records")[1])
    assert [line.number for line in lines if isinstance(line, SentLine)] == [1, 2]


def test_configurations_in_transactions_are_told_apart(tmp_path: Path) -> None:
    send(tmp_path, {STORED: [1]})
    with RecordWriter(tmp_path, "c", Consuming("q", "q", exactly_once=True)) as record:
        record.seen(Identity("p", 1), redelivered=False)
        record.done([Identity("p", 1)])
        record.done([Identity("p", 1)])
    finding = judge(tmp_path)
    assert finding.exactly_once
    assert finding.duplicated == 1


def test_a_file_that_is_no_record_is_refused(records: Path) -> None:
    with (records / "c.records").open("a") as file:
        file.write("what is this\n")
    with pytest.raises(ValueError, match="what is this"):
        judge_records(records)
