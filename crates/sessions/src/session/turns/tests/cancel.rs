use super::*;

#[test]
fn a_cancel_depends_on_the_phase_of_the_turn() {
    for (name, mut fixture, expected) in [
        ("no turn", Fixture::new(), [None, None]),
        ("cancelled", Fixture::cancelled_at(0), [None, None]),
        ("sent", Fixture::sent(), [Some(CancelStep::Send), None]),
        // The actor ends the turn after the first effect. Until then the effect stays the same.
        (
            "unsent",
            Fixture::unsent(),
            [Some(CancelStep::Complete), Some(CancelStep::Complete)],
        ),
    ] {
        let effects = [1, 2].map(|seconds| fixture.cancel(seconds));
        assert_eq!(effects, expected, "{name}");
    }
}

#[test]
fn a_cancel_before_the_send_completes_the_turn_at_once() {
    let mut fixture = Fixture::unsent();
    assert_eq!(fixture.cancel(0), Some(CancelStep::Complete));
    assert!(!fixture.turns.is_cancelling(), "the agent was not asked");
    assert!(!fixture.turns.is_stopping_process());
    assert_eq!(fixture.turns.take().unwrap().record.prompt_id, prompt(1));
}

#[test]
fn a_cancel_after_a_failed_send_completes_the_turn_at_once() {
    let mut fixture = Fixture::unsent();
    fixture.turns.prompt_sent(None, fixture.base);
    assert_eq!(fixture.cancel(0), Some(CancelStep::Complete));
}

#[test]
fn a_second_cancel_does_not_extend_the_first() {
    let mut fixture = Fixture::cancelled_at(10);
    assert!(fixture.turns.is_cancelling());
    let clock = deadlines::clock();
    let before = fixture.turns.deadline(&limits(), clock);
    assert_eq!(fixture.cancel(12), None);
    assert_eq!(fixture.turns.deadline(&limits(), clock), before);
}

#[test]
fn the_end_of_a_turn_shows_whether_its_process_is_being_stopped() {
    let mut fixture = Fixture::cancelled_at(0);
    assert!(!fixture.turns.is_stopping_process());
    let now = fixture.at(15);
    let overdue = fixture.overdue(&limits(), deadlines::clock(), now);
    assert_eq!(overdue, Some(CancelStep::StopProcess));
    assert!(fixture.turns.is_stopping_process() && fixture.turns.is_cancelling());
    assert_eq!(fixture.cancel(16), None);
    assert!(fixture.turns.is_stopping_process() && fixture.turns.take().is_some());
    assert!(!fixture.turns.is_stopping_process());
    assert!(fixture.turns.take().is_none(), "a turn ends once");
}

#[test]
fn the_next_turn_is_not_cancelled() {
    let mut fixture = Fixture::cancelled_at(0);
    fixture.end();
    fixture.begin(2);
    assert!(!fixture.turns.is_cancelling() && fixture.turns.is_unsent());
}
