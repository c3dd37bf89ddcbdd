use super::*;

/// The circumstances of a turn without a drain: the agent may be silent for 100 s.
pub(super) fn clock() -> TurnClock {
    TurnClock {
        idle_timeout: Duration::from_secs(100),
        agent_waits: false,
        drain_at: None,
    }
}

/// A turn whose process is being stopped since second 25, after a cancel at second 10.
fn stopping() -> Fixture {
    let mut fixture = Fixture::cancelled_at(10);
    let now = fixture.at(25);
    let overdue = fixture.overdue(&limits(), clock(), now);
    assert_eq!(overdue, Some(CancelStep::StopProcess));
    fixture
}

/// A sent turn whose agent sent a message at second 20.
fn active() -> Fixture {
    let mut fixture = Fixture::sent();
    fixture.turns.note_activity(fixture.at(20));
    fixture
}

#[test]
fn each_phase_of_a_turn_has_its_deadline() {
    type Row = (
        &'static str,
        fn() -> Fixture,
        bool,
        Option<u64>,
        Option<u64>,
    );
    // (phase, fixture, the agent waits, begin of the end by a drain, deadline)
    let rows: [Row; 19] = [
        ("no turn", Fixture::new, false, Some(5), None),
        ("unsent", Fixture::unsent, false, None, None),
        ("unsent", Fixture::unsent, false, Some(50), Some(50)),
        ("sent", Fixture::sent, false, None, Some(100)),
        ("sent", Fixture::sent, true, None, None),
        ("sent", Fixture::sent, true, Some(50), Some(50)),
        ("sent", Fixture::sent, false, Some(50), Some(50)),
        ("sent", Fixture::sent, false, Some(200), Some(100)),
        ("active", active, false, None, Some(120)),
        ("active", active, false, Some(110), Some(110)),
        (
            "cancelled",
            || Fixture::cancelled_at(10),
            false,
            None,
            Some(25),
        ),
        (
            "cancelled",
            || Fixture::cancelled_at(10),
            true,
            None,
            Some(25),
        ),
        // A drain leaves a cancelled turn one second, from the later of both times.
        (
            "cancelled",
            || Fixture::cancelled_at(10),
            false,
            Some(5),
            Some(11),
        ),
        (
            "cancelled",
            || Fixture::cancelled_at(10),
            false,
            Some(12),
            Some(13),
        ),
        (
            "cancelled",
            || Fixture::cancelled_at(10),
            true,
            Some(12),
            Some(13),
        ),
        (
            "cancelled",
            || Fixture::cancelled_at(10),
            false,
            Some(60),
            Some(25),
        ),
        ("stopping", stopping, false, None, Some(40)),
        ("stopping", stopping, true, None, Some(40)),
        ("stopping", stopping, false, Some(12), Some(40)),
    ];
    for (phase, fixture, agent_waits, drain, expected) in rows {
        let fixture = fixture();
        let clock = TurnClock {
            agent_waits,
            drain_at: drain.map(|at| fixture.at(at)),
            ..clock()
        };
        let deadline = fixture.turns.deadline(&limits(), clock);
        assert_eq!(
            fixture.seconds(deadline),
            expected,
            "{phase} {agent_waits} {drain:?}"
        );
    }
}

#[test]
fn a_tool_call_in_progress_is_cancelled_only_after_the_longer_limit() {
    let call = |status: &str| raw(&format!(r#"{{"toolCallId":"a","status":"{status}"}}"#));
    // (kind, update, deadline, cause of the cancel)
    let rows = [
        (
            update::TOOL_CALL,
            raw(r#"{"toolCallId":"a"}"#),
            1000,
            CancelCause::ToolCallSilence,
        ),
        (
            update::TOOL_CALL_UPDATE,
            call("in_progress"),
            1000,
            CancelCause::ToolCallSilence,
        ),
        (
            update::TOOL_CALL_UPDATE,
            call("completed"),
            100,
            CancelCause::Silence,
        ),
        (
            update::TOOL_CALL_UPDATE,
            call("failed"),
            100,
            CancelCause::Silence,
        ),
        (
            update::TOOL_CALL_UPDATE,
            raw(r#"{"toolCallId":"a"}"#),
            100,
            CancelCause::Silence,
        ),
        (update::PLAN, call("in_progress"), 100, CancelCause::Silence),
    ];
    let limits = Limits {
        tool_call_idle_timeout: Duration::from_secs(1000),
        ..limits()
    };
    for (kind, raw, expected, cause) in rows {
        let mut fixture = Fixture::sent();
        fixture.turns.track_call(kind, &raw, None);
        let deadline = fixture.turns.deadline(&limits, clock());
        assert_eq!(fixture.seconds(deadline), Some(expected), "{kind} {raw}");
        let now = fixture.at(expected);
        fixture.overdue(&limits, clock(), now);
        assert_eq!(
            fixture.turns.take().unwrap().record.cancel_cause,
            Some(cause)
        );
    }
    let mut fixture = Fixture::sent();
    for (kind, status, runs) in [
        (update::TOOL_CALL, "pending", true),
        (update::TOOL_CALL_UPDATE, "in_progress", true),
        (update::TOOL_CALL_UPDATE, "completed", false),
    ] {
        fixture.turns.track_call(kind, &call(status), Some("child"));
        let seconds = fixture.seconds(fixture.turns.deadline(&limits, clock()));
        assert_eq!(seconds, Some(if runs { 1000 } else { 100 }), "{status}");
    }
    // A shorter limit than that of other turns has no effect.
    fixture
        .turns
        .track_call(update::TOOL_CALL, &call("pending"), None);
    let short = Limits {
        tool_call_idle_timeout: Duration::from_secs(1),
        ..limits
    };
    let deadline = fixture.turns.deadline(&short, clock());
    assert_eq!(fixture.seconds(deadline), Some(100));
}

#[test]
fn the_first_cause_of_a_cancel_remains() {
    let mut fixture = Fixture::cancelled_at(10);
    let drain = TurnClock {
        drain_at: Some(fixture.at(11)),
        ..clock()
    };
    let now = fixture.at(12);
    fixture.overdue(&limits(), drain, now);
    assert_eq!(
        fixture.turns.take().unwrap().record.cancel_cause,
        Some(CancelCause::Person)
    );
    let mut fixture = Fixture::unsent();
    let now = fixture.at(12);
    fixture.overdue(&limits(), drain, now);
    assert_eq!(
        fixture.turns.take().unwrap().record.cancel_cause,
        Some(CancelCause::Drain)
    );
}

#[test]
fn an_agent_that_ignores_the_cancel_loses_its_process() {
    let mut fixture = Fixture::sent();
    // (second, effect)
    for (second, expected) in [
        (0, None),
        (99, None),
        (100, Some(CancelStep::Send)),
        (114, None),
        (115, Some(CancelStep::StopProcess)),
        (115, None),
        (129, None),
        (130, Some(CancelStep::AbandonProcess)),
        (200, Some(CancelStep::AbandonProcess)),
    ] {
        let now = fixture.at(second);
        assert_eq!(
            fixture.overdue(&limits(), clock(), now),
            expected,
            "{second}"
        );
    }
}

#[test]
fn a_drain_cancels_the_turn_and_then_stops_the_process() {
    let mut fixture = Fixture::sent();
    let clock = TurnClock {
        drain_at: Some(fixture.at(5)),
        ..clock()
    };
    for (second, expected) in [
        (4, None),
        (5, Some(CancelStep::Send)),
        (6, Some(CancelStep::StopProcess)),
        (34, None),
        (35, Some(CancelStep::AbandonProcess)),
    ] {
        let now = fixture.at(second);
        assert_eq!(fixture.overdue(&limits(), clock, now), expected, "{second}");
    }
}

#[test]
fn a_drain_cancels_an_unsent_turn_that_began_with_it() {
    let mut fixture = Fixture::unsent();
    let clock = TurnClock {
        drain_at: Some(fixture.at(5)),
        ..clock()
    };
    for (second, expected) in [(4, None), (5, Some(CancelStep::Complete))] {
        let now = fixture.at(second);
        assert_eq!(fixture.overdue(&limits(), clock, now), expected);
    }
}

#[test]
fn a_cancelled_turn_of_an_idle_agent_completes() {
    // (acknowledged, busy, effect of the overdue cancel)
    for (acknowledged, busy, expected) in [
        (true, false, CancelStep::Complete),
        (true, true, CancelStep::StopProcess),
        (false, false, CancelStep::StopProcess),
        (false, true, CancelStep::StopProcess),
    ] {
        let mut fixture = Fixture::sent();
        if acknowledged {
            fixture.acknowledge();
        }
        if busy {
            fixture.state(BUSY, 1);
        }
        fixture.cancel(10);
        let now = fixture.at(25);
        let overdue = fixture.overdue(&limits(), clock(), now);
        assert_eq!(overdue, Some(expected), "{acknowledged} {busy}");
    }
}

#[test]
fn the_wait_for_the_response_after_the_work_is_limited() {
    let mut fixture = Fixture::sent();
    fixture.state(BUSY, 3);
    assert_eq!(fixture.turns.work_deadline(&limits()), None);
    fixture.state(END_TURN, 5);
    assert_eq!(
        fixture.seconds(fixture.turns.work_deadline(&limits())),
        Some(20)
    );
    assert_eq!(
        named(fixture.turns.work_end()),
        "none",
        "the agent has not responded"
    );
    fixture.turns.acknowledge();
    assert_eq!(named(fixture.turns.work_end()), "completed end_turn");
    assert_eq!(fixture.turns.work_deadline(&limits()), None);
}

#[test]
fn an_acknowledgement_without_a_turn_has_no_effect() {
    let mut fixture = Fixture::new();
    fixture.turns.acknowledge();
    assert_eq!(named(fixture.turns.work_end()), "none");
    assert_eq!(fixture.turns.work_deadline(&limits()), None);
}

#[test]
fn background_work_keeps_the_process_until_the_agent_is_silent() {
    let mut fixture = Fixture::new();
    let timeout = clock().idle_timeout;
    assert_eq!(fixture.turns.background_deadline(timeout), None);
    fixture.turns.note_update(fixture.at(7));
    fixture.state(BUSY, 7);
    assert_eq!(
        fixture.seconds(fixture.turns.background_deadline(timeout)),
        Some(107)
    );
    fixture.turns.note_update(fixture.at(50));
    assert_eq!(
        fixture.seconds(fixture.turns.background_deadline(timeout)),
        Some(150)
    );
    fixture.turns.end_background_work();
    assert_eq!(fixture.turns.background_deadline(timeout), None);
    assert!(!fixture.turns.works_in_background());
}
