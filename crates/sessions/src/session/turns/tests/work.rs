use proptest::prelude::*;

use super::super::turn::CANCEL_TARGETS;
use super::*;

/// An input of an agent of ACP v2 during a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Input {
    /// The response to the prompt.
    Ack,
    /// The agent repeats the message of the prompt.
    Echo,
    Chunk,
    Busy,
    Idle,
    /// Idle with a stop reason.
    End,
}

use Input::{Ack, Busy, Chunk, Echo, End, Idle};

/// Passes an input as the actor does. Returns whether the turn ends.
fn pass(fixture: &mut Fixture, input: Input) -> bool {
    let now = fixture.at(1);
    let turns = &mut fixture.turns;
    let update = match input {
        Ack => None,
        Echo => Some((update::USER_MESSAGE, "{}")),
        Chunk => Some((update::AGENT_MESSAGE_CHUNK, "{}")),
        Busy => Some((update::STATE, BUSY)),
        Idle => Some((update::STATE, IDLE)),
        End => Some((update::STATE, END_TURN)),
    };
    if let Some((kind, update)) = update {
        turns.track_work(kind, &raw(update), now);
    } else {
        turns.answered(Ok(raw("{}")), false);
    }
    let ends = turns.work_end().is_some();
    if ends {
        fixture.end();
    }
    ends
}

/// The positions of the inputs that ended the turn. `background`: work ran before the prompt was sent.
fn ends_at(background: bool, inputs: &[Input]) -> Vec<usize> {
    let mut fixture = Fixture::new();
    if background {
        pass(&mut fixture, Busy);
    }
    fixture.begin(1);
    fixture.send();
    (0..inputs.len())
        .filter(|at| pass(&mut fixture, inputs[*at]))
        .collect()
}

#[test]
fn the_turn_ends_with_the_later_of_acknowledgement_and_idle() {
    for inputs in [
        &[Ack, Busy, End][..],
        &[Busy, Ack, End],
        &[Busy, End, Ack],
        &[Busy, Idle, Ack],
        &[Echo, Busy, End, Ack],
        &[Ack, Echo, Busy, Chunk, End],
        // The agent continues after an early idle state.
        &[Busy, Idle, Busy, Ack, End],
        // A repeated idle state does not replace the first.
        &[Busy, End, Idle, Ack],
        // The agent reports no start of its work.
        &[Ack, End],
    ] {
        assert_eq!(ends_at(false, inputs), [inputs.len() - 1], "{inputs:?}");
    }
}

#[test]
fn the_turn_does_not_end_without_both_inputs() {
    for inputs in [
        &[Ack][..],
        &[Ack, Busy],
        &[Busy, End],
        &[Busy, End, Busy, Ack],
        // An idle state without a start and a stop reason may repeat an earlier one.
        &[Ack, Idle],
        &[Idle, Ack],
        &[End, Ack],
        &[Ack, Echo, Chunk],
    ] {
        assert_eq!(ends_at(false, inputs), [0; 0], "{inputs:?}");
    }
}

#[test]
fn the_end_of_background_work_that_predates_the_prompt_does_not_end_the_turn() {
    for inputs in [
        &[Idle, Busy, Idle, Ack][..],
        &[End, Busy, Ack, End],
        &[Idle, Ack, Busy, Idle],
        &[End, Ack, End],
        // The agent inserted the message into the running work.
        &[Ack, Idle],
        &[Echo, Idle, Ack],
    ] {
        assert_eq!(ends_at(true, inputs), [inputs.len() - 1], "{inputs:?}");
    }
    for inputs in [&[End, Ack][..], &[Idle, Echo, Ack], &[End, Busy, Ack]] {
        assert_eq!(ends_at(true, inputs), [0; 0], "{inputs:?}");
    }
}

proptest! {
    #[test]
    fn every_order_of_acknowledgement_and_work_ends_the_turn_once(
        noise in prop::collection::vec(prop::sample::select(vec![Echo, Chunk, Busy]), 0..6),
        response in 0_usize..10,
        more in prop::collection::vec(prop::sample::select(vec![Echo, Chunk, Idle, End]), 0..6),
    ) {
        let mut inputs = vec![Busy];
        inputs.extend(noise);
        inputs.push(End);
        let response = response.min(inputs.len());
        inputs.insert(response, Ack);
        let complete = inputs.len() - 1;
        inputs.extend(more);
        prop_assert_eq!(ends_at(false, &inputs), [complete]);
    }

    #[test]
    fn no_order_of_inputs_ends_a_turn_twice(
        background in any::<bool>(),
        inputs in prop::collection::vec(prop::sample::select(vec![Ack, Echo, Chunk, Busy, Idle, End]), 0..16),
    ) {
        let ends = ends_at(background, &inputs);
        prop_assert!(ends.len() <= 1);
        if let Some(end) = ends.first() {
            prop_assert!(inputs[..=*end].contains(&Ack), "the agent has acknowledged the prompt");
            prop_assert!(inputs[..=*end].iter().any(|input| matches!(input, Idle | End)));
        }
    }
}

#[test]
fn background_work_is_work_without_a_sent_turn() {
    // (fixture, state, background work before, change, background work after)
    for (name, mut fixture, state, expected) in [
        ("no turn", Fixture::new(), BUSY, (false, true, true)),
        ("no turn", Fixture::new(), IDLE, (false, false, false)),
        ("no turn", Fixture::new(), "{}", (false, false, false)),
        ("unsent", Fixture::unsent(), BUSY, (false, true, true)),
        ("sent", Fixture::sent(), BUSY, (false, false, false)),
        ("sent", Fixture::sent(), IDLE, (false, false, false)),
        ("busy", background(), BUSY, (true, false, true)),
        ("busy", background(), END_TURN, (true, true, false)),
        ("busy", background(), "{}", (true, false, true)),
    ] {
        let before = fixture.turns.works_in_background();
        let change = fixture.state(state, 1);
        let after = fixture.turns.works_in_background();
        assert_eq!((before, change, after), expected, "{name} {state}");
    }
}

/// A session without a turn whose agent works.
fn background() -> Fixture {
    let mut fixture = Fixture::new();
    assert!(fixture.state(BUSY, 0));
    fixture
}

#[test]
fn work_moves_between_the_turn_and_the_background() {
    let mut fixture = background();
    fixture.begin(1);
    assert!(fixture.turns.works_in_background());
    fixture.send();
    assert!(!fixture.turns.works_in_background() && fixture.turns.is_agent_busy());
    fixture.end();
    assert!(
        fixture.turns.works_in_background(),
        "the work continues after the end of the turn"
    );
    fixture.turns.process_released(fixture.base);
    assert!(!fixture.turns.works_in_background() && !fixture.turns.is_agent_busy());
}

#[test]
fn late_update_belongs_to_the_last_turn_until_the_next_one_starts() {
    type Inputs = fn(&mut Fixture);
    let ended: Inputs = |fixture| {
        fixture.end();
    };
    let sent: Inputs = |fixture| {
        fixture.begin(2);
        fixture.send();
    };
    let busy: Inputs = |fixture| {
        fixture.state(BUSY, 1);
    };
    let idle: Inputs = |fixture| {
        fixture.state(IDLE, 1);
    };
    let detached: Inputs = |fixture| {
        fixture.turns.take().unwrap();
        fixture.turns.ended(None);
    };
    // (inputs after the send of turn 1, owner of an update of the conversation, owner of an update of the state)
    let rows: [(&str, &[Inputs], _, _); 10] = [
        ("sent", &[], (Some(1), false), (Some(1), false)),
        ("ended", &[ended], (Some(1), true), (None, false)),
        (
            "ended without a process",
            &[detached],
            (None, false),
            (None, false),
        ),
        ("busy", &[ended, busy], (None, false), (None, false)),
        ("idle", &[ended, idle], (Some(1), true), (None, false)),
        (
            "released",
            &[ended, |fixture| {
                fixture.turns.process_released(fixture.base);
            }],
            (None, false),
            (None, false),
        ),
        (
            "closed",
            &[ended, |fixture| fixture.turns.ended(None)],
            (None, false),
            (None, false),
        ),
        (
            "next begins",
            &[ended, |fixture| fixture.begin(2)],
            (None, false),
            (None, false),
        ),
        (
            "next is sent",
            &[ended, sent],
            (Some(2), false),
            (Some(2), false),
        ),
        (
            "next ended",
            &[ended, sent, ended],
            (Some(2), true),
            (None, false),
        ),
    ];
    for (name, inputs, conversation, state) in rows {
        let mut fixture = Fixture::sent();
        for input in inputs {
            input(&mut fixture);
        }
        let owner = |(number, late): (Option<u32>, bool)| (number.map(prompt), late);
        assert_eq!(
            fixture.turns.of_update(false),
            owner(conversation),
            "{name}"
        );
        assert_eq!(fixture.turns.of_update(true), owner(state), "{name}");
    }
    assert_eq!(
        Fixture::unsent().turns.of_update(false),
        (None, false),
        "an unsent turn has no updates"
    );
}

fn tool_call(id: usize, capabilities: &str) -> Box<RawValue> {
    raw(&format!(
        r#"{{"toolCallId":"{id}","capabilities":{capabilities}}}"#
    ))
}

fn part(id: usize) -> CancelTarget {
    CancelTarget::ToolCall(id.to_string())
}

#[test]
fn a_part_can_be_cancelled_while_the_agent_reports_it() {
    let mut fixture = Fixture::sent();
    let track = |fixture: &mut Fixture, capabilities: &str| {
        fixture.turns.track_work(
            update::TOOL_CALL_UPDATE,
            &tool_call(1, capabilities),
            fixture.base,
        );
        fixture.turns.can_cancel(&part(1))
    };
    assert!(!fixture.turns.can_cancel(&part(1)));
    // (reported capabilities, the part can be cancelled)
    for (capabilities, expected) in [
        (r#"{"cancel":{}}"#, true),
        (r#"{"cancel":{}}"#, true),
        ("{}", false),
        (r#"{"cancel":{}}"#, true),
    ] {
        assert_eq!(
            track(&mut fixture, capabilities),
            expected,
            "{capabilities}"
        );
    }
    assert!(
        !fixture
            .turns
            .can_cancel(&CancelTarget::Terminal("1".to_owned())),
        "a terminal is another part"
    );
    fixture.end();
    assert!(
        fixture.turns.can_cancel(&part(1)),
        "the part may outlive its turn"
    );
    fixture.turns.process_released(fixture.base);
    assert!(
        !fixture.turns.can_cancel(&part(1)),
        "the part ends with its process"
    );
}

#[test]
fn the_parts_that_can_be_cancelled_are_limited() {
    let mut fixture = Fixture::sent();
    let cancel = |id| tool_call(id, r#"{"cancel":{}}"#);
    for id in 0..CANCEL_TARGETS {
        fixture
            .turns
            .track_cancellable(update::TOOL_CALL_UPDATE, &cancel(id));
    }
    fixture
        .turns
        .track_cancellable(update::TOOL_CALL_UPDATE, &cancel(0));
    fixture
        .turns
        .track_cancellable(update::TOOL_CALL_UPDATE, &cancel(CANCEL_TARGETS));
    assert!(
        !fixture.turns.can_cancel(&part(1)),
        "the least recently updated part is evicted"
    );
    assert!(
        [0, 2, CANCEL_TARGETS]
            .iter()
            .all(|id| fixture.turns.can_cancel(&part(*id)))
    );
}
