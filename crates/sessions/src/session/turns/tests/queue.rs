use super::*;
use crate::session::fixtures;

#[test]
fn a_prompt_runs_waits_or_is_rejected() {
    let behind = |number| Err(TurnRunning(prompt(number)).to_string());
    let full = |max| Err(AdmitError::QueueFull(max).to_string());
    let at = |place| Ok(Some(place));
    // (a turn runs, queued prompts, the client accepts the queue, maximum of the queue, admission)
    for (runs, waiting, queue, max, expected) in [
        (false, 0, false, 2, Ok(None)),
        (false, 0, true, 2, Ok(None)),
        (false, 0, true, 0, Ok(None)),
        (true, 0, false, 2, behind(1)),
        (true, 0, true, 2, at(1)),
        (true, 0, true, 0, full(0)),
        (true, 1, true, 2, at(2)),
        (true, 2, true, 2, full(2)),
        (true, 2, false, 2, behind(1)),
        // A restored prompt waits for a process without a turn before it.
        (false, 1, false, 2, behind(2)),
        (false, 1, true, 2, at(2)),
        (false, 2, true, 2, full(2)),
    ] {
        let mut fixture = if runs {
            Fixture::unsent()
        } else {
            Fixture::new()
        };
        fixture.enqueue(2..2 + waiting);
        let row = (runs, waiting, queue, max);
        let admitted = fixture
            .turns
            .admit(queue, max)
            .map_err(|error| error.to_string());
        assert_eq!(admitted, expected, "{row:?}");
    }
}

#[test]
fn queued_prompts_start_in_order_after_the_running_turn() {
    let mut fixture = Fixture::unsent();
    fixture.enqueue([2, 3]);
    assert!(fixture.turns.next().is_none());
    fixture.end();
    assert_eq!(fixture.turns.next().unwrap().record.prompt_id, prompt(2));
    assert_eq!(fixture.drain_queue(), [2, 3]);
    assert!(fixture.turns.next().is_none());
}

#[test]
fn a_cancel_removes_queued_prompts_in_order() {
    // (cancelled prompt or all, cancelled, remaining)
    for (cancelled, expected, remaining) in [
        (None, vec![2, 3, 4], vec![]),
        (Some(3), vec![3], vec![2, 4]),
        (Some(2), vec![2], vec![3, 4]),
        (Some(1), vec![], vec![2, 3, 4]),
        (Some(9), vec![], vec![2, 3, 4]),
    ] {
        let mut fixture = Fixture::sent();
        fixture.enqueue(2..=4);
        let removed = fixture.turns.remove_queued(cancelled.map(prompt));
        let removed: Vec<u32> = removed
            .iter()
            .map(|queued| queued.record.prompt_id.number())
            .collect();
        assert_eq!(removed, expected, "{cancelled:?}");
        assert_eq!(
            fixture.turns.running(),
            Some(prompt(1)),
            "the running turn is not queued"
        );
        assert_eq!(fixture.drain_queue(), remaining, "{cancelled:?}");
    }
}

#[test]
fn a_failed_prompt_is_removed_from_the_queue_by_its_id() {
    let mut fixture = Fixture::new();
    fixture.enqueue(1..=3);
    let removed = fixture.turns.remove_queued(Some(prompt(2)));
    assert_eq!(removed[0].record.prompt_id, prompt(2));
    assert!(fixture.turns.remove_queued(Some(prompt(2))).is_empty());
    assert_eq!(fixture.drain_queue(), [1, 3]);
}

#[test]
fn a_retry_of_the_queue_has_a_deadline_until_it_is_reset() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.turns.retry_at, None);
    let at = fixture.at(3);
    fixture.turns.retry_at = Some(at);
    assert_eq!(fixture.turns.retry_at, Some(at));
    fixture.turns.retry_at = None;
    assert_eq!(fixture.turns.retry_at, None);
}

#[test]
fn a_prompt_is_ready_only_after_its_event_is_durable() {
    // (sequence number of the event, committed sequence number, ready)
    for (started, committed, ready) in [
        (5, 0, false),
        (5, 4, false),
        (5, 5, true),
        (5, 9, true),
        (u64::MAX, 9, false),
    ] {
        let mut fixture = Fixture::new();
        fixture.turns.begin(queued(1), started, fixture.base);
        assert_eq!(
            fixture.turns.ready(committed).is_some(),
            ready,
            "{started} {committed}"
        );
    }
    assert!(
        Fixture::new().turns.ready(u64::MAX).is_none(),
        "no turn runs"
    );
    assert!(
        Fixture::sent().turns.ready(u64::MAX).is_none(),
        "the prompt was sent"
    );
}

#[test]
fn a_ready_prompt_has_its_blocks_and_its_trace() {
    let fixture = Fixture::unsent();
    let (blocks, trace) = fixture.turns.ready(1).unwrap();
    assert_eq!(blocks.get(), r#"[{"type":"text","text":"1"}]"#);
    assert_eq!(trace.unwrap().traceparent(), PARENT);
    assert_eq!(fixture.turns.trace(), trace);
    assert_eq!(Fixture::new().turns.trace(), None);
}

#[test]
fn the_send_changes_the_phase_of_the_turn() {
    // (fixture, running, sent, unsent, produces output)
    for (name, fixture, expected) in [
        ("no turn", Fixture::new(), (None, None, false, false)),
        (
            "unsent",
            Fixture::unsent(),
            (Some(prompt(1)), None, true, false),
        ),
        (
            "sent",
            Fixture::sent(),
            (Some(prompt(1)), Some(prompt(1)), false, true),
        ),
        (
            "cancelled",
            Fixture::cancelled_at(0),
            (Some(prompt(1)), Some(prompt(1)), false, false),
        ),
    ] {
        let turns = &fixture.turns;
        let phase = (
            turns.running(),
            turns.sent(),
            turns.is_unsent(),
            turns.produces_output(),
        );
        assert_eq!(phase, expected, "{name}");
    }
}

#[test]
fn a_prompt_stays_unsent_if_the_stdin_of_the_agent_is_closed() {
    let mut fixture = Fixture::unsent();
    fixture.turns.prompt_sent(None, fixture.base);
    assert!(fixture.turns.is_unsent());
    assert!(
        fixture.turns.ready(1).is_some(),
        "the next process gets the prompt"
    );
}

#[test]
fn only_the_call_of_the_running_turn_is_its_prompt() {
    let mut fixture = Fixture::unsent();
    let other = fixture.calls.register_call();
    let call = fixture.send();
    assert!(fixture.turns.is_prompt(call) && !fixture.turns.is_prompt(other));
    fixture.end();
    assert!(!fixture.turns.is_prompt(call));
}

#[test]
fn a_drain_returns_only_an_unsent_prompt_to_the_head_of_the_queue() {
    // (fixture, returned, queue)
    for (name, mut fixture, returned, queue) in [
        ("no turn", Fixture::new(), false, vec![2, 3]),
        ("unsent", Fixture::unsent(), true, vec![1, 2, 3]),
        ("sent", Fixture::sent(), false, vec![2, 3]),
        ("cancelled", Fixture::cancelled_at(0), false, vec![2, 3]),
    ] {
        fixture.enqueue([2, 3]);
        let runs = fixture.turns.running().is_some();
        assert_eq!(fixture.turns.return_unsent(), returned, "{name}");
        assert_eq!(
            fixture.turns.running().is_some(),
            runs && !returned,
            "{name}"
        );
        let head = fixture.turns.unsent_head().map(|record| record.prompt_id);
        assert_eq!(head, returned.then(|| prompt(1)), "{name}");
        assert_eq!(fixture.drain_queue(), queue, "{name}");
    }
}

#[test]
fn a_returned_prompt_is_sent_only_after_the_event_that_removes_its_mark() {
    let mut fixture = Fixture::unsent();
    assert!(fixture.turns.return_unsent());
    let queued = fixture.turns.dequeue().unwrap();
    assert!(queued.record.unsent && !queued.restored);
    assert_eq!(queued.request.trace.as_ref().unwrap().traceparent(), PARENT);
    fixture.turns.begin(queued, u64::MAX, fixture.base);
    assert!(fixture.turns.ready(7).is_none());
    let record = fixture.turns.mark_sent(7).unwrap();
    assert!(!record.unsent && record.prompt_id == prompt(1));
    assert!(
        fixture.turns.mark_sent(8).is_none(),
        "the mark is removed once"
    );
    assert!(fixture.turns.ready(6).is_none());
    assert!(fixture.turns.ready(7).is_some());
}

#[test]
fn a_turn_that_no_drain_returned_has_no_mark() {
    for mut fixture in [Fixture::new(), Fixture::unsent(), Fixture::sent()] {
        assert!(fixture.turns.mark_sent(7).is_none());
    }
}

#[tokio::test]
async fn the_end_of_a_turn_is_appended_and_notifies_its_waiters() {
    let mut fixture = Fixture::unsent();
    let (mut journal, _audit) = fixtures::journal().await;
    assert!(!fixture.ends.has_changed().unwrap());
    let prompt = fixture.turns.take().unwrap();
    fixture
        .turns
        .append_end(&mut journal, prompt, Ok(Completion::cancelled()));
    assert_eq!(*fixture.ends.borrow_and_update(), 1);
    assert_eq!(fixtures::kinds(journal.log()).await, ["prompt.completed"]);
}

#[tokio::test]
async fn an_accepted_prompt_runs_waits_for_a_process_or_waits_in_the_queue() {
    let (mut journal, _audit) = fixtures::journal().await;
    let mut fixture = Fixture::new();
    let spec = Arc::new(AgentSpec::removed("a".parse().unwrap()));
    // (a process is ready, prompts in the session's list, events)
    for (starts, waiting, events) in [
        (true, vec![], vec!["prompt.started"]),
        (false, vec![2], vec!["prompt.started", "prompt.queued"]),
    ] {
        let place = fixture.turns.admit(true, 1).unwrap();
        let (accepted, seq, tool_client) = fixture.turns.accept(
            &mut journal,
            "alice",
            queued(1).request,
            None,
            place,
            starts,
            Arc::clone(&spec),
            fixture.base,
        );
        assert_eq!(accepted.last_event_id.seq, seq);
        assert!(tool_client.is_none());
        let waiting: Vec<PromptId> = waiting.into_iter().map(prompt).collect();
        assert_eq!(journal.record().queued, waiting);
        assert_eq!(fixtures::kinds(journal.log()).await, events);
    }
    assert_eq!(fixture.turns.running(), Some(prompt(1)));
    assert!(fixture.turns.ready(1).is_some(), "its start is durable");
}

#[test]
fn a_move_keeps_the_order_of_the_others() {
    let mut fixture = Fixture::sent();
    for number in 2..=5 {
        fixture.turns.enqueue(queued(number));
    }
    let ids = |order: Vec<PromptId>| order.into_iter().map(PromptId::number).collect::<Vec<_>>();
    for (number, before, order) in [
        (5, Some(2), [5, 2, 3, 4]),
        (2, Some(4), [5, 3, 2, 4]),
        (5, None, [3, 2, 4, 5]),
        (3, Some(5), [2, 4, 3, 5]),
    ] {
        let moved = fixture
            .turns
            .moved(prompt(number), before.map(prompt))
            .unwrap();
        fixture.turns.reorder(&moved);
        assert_eq!(ids(fixture.turns.order()), order);
        assert_eq!(
            fixture.turns.moved(prompt(number), before.map(prompt)),
            None,
            "the same move again"
        );
        assert_eq!(
            fixture.turns.moved(prompt(number), Some(prompt(number))),
            None
        );
    }
}

#[tokio::test]
async fn a_change_of_the_content_and_the_place_is_one_event() {
    let (mut journal, _audit) = fixtures::journal().await;
    let mut fixture = Fixture::sent();
    fixture.enqueue([2, 3]);
    let spec = Arc::new(AgentSpec::removed("a".parse().unwrap()));
    let edited = r#"[{"type":"text","text":"edited"}]"#;
    // The second change has no effect.
    for blocks in [Some(raw(edited)), None] {
        let before = Some(Some(prompt(2)));
        let spec = Arc::clone(&spec);
        fixture
            .turns
            .change(&mut journal, "bob", prompt(3), blocks, before, spec);
        assert_eq!(journal.record().queued, [prompt(3), prompt(2)]);
        assert_eq!(fixtures::kinds(journal.log()).await, ["prompt.changed"]);
    }
    let queued = fixture.turns.queued(prompt(3)).unwrap();
    assert_eq!(queued.request.blocks.get(), edited);
    assert_eq!(queued.record.content_seq(), 1);
    assert_eq!(queued.record.edit.as_ref().unwrap().by, "bob");
    assert_eq!(fixture.turns.order(), [prompt(3), prompt(2)]);
}

#[test]
fn a_returned_prompt_is_not_one_of_the_queue() {
    let mut fixture = Fixture::new();
    let started = PromptRecord {
        status: PromptStatus::Running,
        ..queued(1).record
    };
    fixture.turns.begin(
        Queued {
            record: started,
            ..queued(1)
        },
        1,
        fixture.at(0),
    );
    fixture.turns.enqueue(queued(2));
    assert!(fixture.turns.return_unsent());
    assert_eq!(fixture.turns.order().len(), 2);
    assert!(fixture.turns.queued(prompt(1)).is_none() && fixture.turns.queued(prompt(2)).is_some());
}

#[tokio::test]
async fn waiting_turn_counts_as_queued_until_it_starts_once() {
    let (mut journal, _audit) = fixtures::journal().await;
    let mut fixture = Fixture::new();
    fixture.turns.begin(queued(1), NOT_YET, fixture.base);
    assert!(fixture.turns.is_waiting());
    assert!(fixture.turns.admit(true, 1).is_err(), "the queue is full");
    let second = fixture.turns.admit(true, 2).expect("the queue has a place");
    assert_eq!(second, Some(2));
    assert!(fixture.turns.start(&mut journal).is_none());
    assert!(!fixture.turns.is_waiting());
    assert_eq!(journal.record().prompt_id, Some(prompt(1)));
    fixture.turns.start(&mut journal);
    assert_eq!(fixtures::kinds(journal.log()).await, ["prompt.started"]);
    assert!(fixture.turns.ready(0).is_none(), "its start is not durable");
    assert!(fixture.turns.ready(1).is_some());
    let record = fixture.turns.mark_unsent().expect("its process ended");
    assert!(record.unsent);
    assert!(!fixture.turns.is_waiting(), "it gets no second start");
    assert!(fixture.turns.ready(u64::MAX - 1).is_none());
}
