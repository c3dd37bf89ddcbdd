use super::super::transitions::KNOWN_SUBAGENTS;
use super::*;
use crate::transcript::SUBAGENT_ID_BYTES;
use events::event::AttachedBy;
use wire::acp::AcpVersion;

const CHUNK: &str = update::AGENT_MESSAGE_CHUNK;

#[test]
fn early_updates_wait_for_the_id_of_a_new_session() {
    for phase in PHASES {
        let mut fixture = Fixture::new(phase);
        let passed = fixture.part.buffer_update(raw("1"), &limits()).is_some();
        assert_eq!(passed, !matches!(phase, NEW | FRESH), "{phase:?}");
    }
}

#[test]
fn buffered_updates_are_limited_by_number_and_bytes() {
    let text = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
    // (sizes of the updates, sizes of the kept updates)
    for (sizes, kept) in [
        (vec![], vec![]),
        (vec![10, 20, 30], vec![10, 20, 30]),
        (vec![10, 20, 30, 40], vec![20, 30, 40]),
        (vec![50, 50], vec![50, 50]),
        (vec![50, 51], vec![51]),
        (vec![40, 40, 90], vec![90]),
        (vec![10, 101], vec![]),
        (vec![101, 10], vec![10]),
    ] {
        let mut fixture = Fixture::new(NEW);
        for size in &sizes {
            assert!(
                fixture
                    .part
                    .buffer_update(raw(&text(*size)), &limits())
                    .is_none()
            );
        }
        let response = fixture.set_up_answered().unwrap();
        let found: Vec<usize> = response
            .updates
            .iter()
            .map(|update| update.get().len())
            .collect();
        assert_eq!(found, kept, "{sizes:?}");
    }
}

#[test]
fn an_update_is_history_during_a_load_and_its_replay() {
    type Row = (&'static str, fn() -> Fixture, [History; 2]);
    let replay = |imports| {
        let mut fixture = Fixture::new(LOAD);
        fixture
            .part
            .enter_attached(SetupMethod::Load, imports, false, &limits(), fixture.base);
        fixture
    };
    // (state, treatment if the history is new to the log, and if it is known)
    let rows: [Row; 5] = [
        (
            "load",
            || Fixture::new(LOAD),
            [History::New, History::Known],
        ),
        (
            "resume",
            || Fixture::new(RESUME),
            [History::Live, History::Live],
        ),
        ("new", || Fixture::new(NEW), [History::Live, History::Live]),
        (
            "attached",
            || Fixture::new(Phase::Attached),
            [History::Live, History::Live],
        ),
        (
            "detached",
            || Fixture::new(Phase::Detached),
            [History::Live, History::Live],
        ),
    ];
    for (name, fixture, expected) in rows {
        let classify = |imports| {
            let mut fixture = fixture();
            fixture
                .part
                .classify_update(CHUNK, imports, &limits(), fixture.base)
        };
        assert_eq!([true, false].map(classify), expected, "{name}");
    }
    for (imports, expected) in [(true, History::New), (false, History::Known)] {
        let mut fixture = replay(imports);
        // The client that imported the session has its answer, so the replay remembers the import.
        assert_eq!(
            fixture
                .part
                .classify_update(CHUNK, false, &limits(), fixture.base),
            expected
        );
        let state =
            fixture
                .part
                .classify_update(update::CURRENT_MODE, imports, &limits(), fixture.base);
        assert_eq!(
            state,
            History::Live,
            "the state of the session is no history"
        );
    }
}

#[test]
fn the_history_of_a_load_is_counted() {
    for imports in [true, false] {
        let mut fixture = Fixture::new(LOAD);
        for kind in [CHUNK, update::CURRENT_MODE, update::TOOL_CALL] {
            fixture
                .part
                .classify_update(kind, imports, &limits(), fixture.base);
        }
        assert_eq!(
            fixture.set_up_answered().unwrap().replayed_updates,
            2,
            "{imports}"
        );
    }
}

/// A session whose replay began at second 0.
fn replaying() -> Fixture {
    let mut fixture = Fixture::new(Phase::Detached);
    fixture.attach(SetupMethod::Load);
    fixture
}

#[test]
fn only_a_load_has_a_replay() {
    for (method, deadline) in [
        (SetupMethod::New, None),
        (SetupMethod::Resume, None),
        (SetupMethod::Load, Some(2)),
        (SetupMethod::Fresh, None),
    ] {
        let mut fixture = Fixture::new(Phase::Detached);
        fixture.attach(method);
        assert_eq!(
            fixture.seconds(fixture.part.replay_deadline()),
            deadline,
            "{method:?}"
        );
        assert_eq!(fixture.part.is_ready(), deadline.is_none(), "{method:?}");
    }
}

#[test]
fn a_replay_ends_when_it_is_quiet_or_too_long() {
    /// An input at a second: history, or a check with or without unread output.
    #[derive(Debug)]
    enum Input {
        Update(u64),
        Check(u64),
        CheckUnread(u64),
    }
    use Input::{Check, CheckUnread, Update};
    // (inputs, next check)
    for (inputs, expected) in [
        (vec![], Some(2)),
        (vec![Check(1)], Some(2)),
        (vec![Check(2)], None),
        (vec![Update(1)], Some(3)),
        (vec![Update(1), Check(2)], Some(3)),
        (vec![Update(1), Check(3)], None),
        (vec![CheckUnread(2)], Some(4)),
        (vec![CheckUnread(2), Check(4)], None),
        // The last check is at second 10, even if updates still arrive.
        (vec![Update(9)], Some(10)),
        (vec![Update(9), Check(10)], None),
        (vec![Update(9), CheckUnread(10)], None),
    ] {
        let mut fixture = replaying();
        for input in &inputs {
            match *input {
                Update(at) => {
                    let treatment =
                        fixture
                            .part
                            .classify_update(CHUNK, false, &limits(), fixture.at(at));
                    assert_eq!(treatment, History::Known, "{inputs:?}");
                }
                Check(at) => fixture.part.check_replay(false, &limits(), fixture.at(at)),
                CheckUnread(at) => fixture.part.check_replay(true, &limits(), fixture.at(at)),
            }
        }
        assert_eq!(
            fixture.seconds(fixture.part.replay_deadline()),
            expected,
            "{inputs:?}"
        );
        assert_eq!(fixture.part.is_ready(), expected.is_none(), "{inputs:?}");
    }
}

#[test]
fn updates_after_the_replay_are_live() {
    let mut fixture = replaying();
    fixture.part.check_replay(false, &limits(), fixture.at(2));
    assert_eq!(
        fixture
            .part
            .classify_update(CHUNK, false, &limits(), fixture.at(2)),
        History::Live
    );
}

#[test]
fn the_owner_of_an_id_is_the_session_or_an_announced_subagent() {
    let mut fixture = Fixture::new(Phase::Attached);
    assert!(
        fixture
            .part
            .announce_subagent(&raw(r#"{"sessionId":"child"}"#))
    );
    assert!(
        fixture.part.announce_subagent(&raw("{}")),
        "an update without an id announces nothing"
    );
    // (id, id of the session at the agent, owner)
    for (id, own, owner) in [
        ("own", Some("own"), SessionOwner::ThisSession),
        ("own", None, SessionOwner::Unknown),
        ("child", Some("own"), SessionOwner::Subagent),
        ("child", None, SessionOwner::Subagent),
        ("child", Some("child"), SessionOwner::ThisSession),
        ("other", Some("own"), SessionOwner::Unknown),
        ("", Some("own"), SessionOwner::Unknown),
    ] {
        assert_eq!(fixture.part.owner_of(id, own), owner, "{id} {own:?}");
    }
}

#[test]
fn each_method_has_its_name_at_the_agent_and_in_the_log() {
    // (method, name in ACP v1, name in ACP v2, name in the log)
    for (method, v1, v2, by) in [
        (
            SetupMethod::New,
            "session/new",
            "session/new",
            AttachedBy::New,
        ),
        (
            SetupMethod::Fresh,
            "session/new",
            "session/new",
            AttachedBy::Fresh,
        ),
        (
            SetupMethod::Resume,
            "session/resume",
            "session/resume",
            AttachedBy::Resume,
        ),
        (
            SetupMethod::Load,
            "session/load",
            "session/resume",
            AttachedBy::Load,
        ),
    ] {
        assert_eq!(
            (method.method(AcpVersion::V1), method.method(AcpVersion::V2)),
            (v1, v2),
            "{method:?}"
        );
        assert_eq!(method.attached_by(), by, "{method:?}");
    }
}

#[test]
fn the_number_and_the_ids_of_subagents_are_limited() {
    let mut part = Fixture::new(Phase::Attached).part;
    let announce = |part: &mut Binding, id: &str| {
        part.announce_subagent(&raw(&format!(r#"{{"sessionId":"{id}"}}"#)))
    };
    for id in 0..KNOWN_SUBAGENTS {
        assert!(announce(&mut part, &id.to_string()));
    }
    assert!(announce(&mut part, "0") && !announce(&mut part, "one more"));
    part.process_released();
    assert!(
        announce(&mut part, "one more") && !announce(&mut part, &"x".repeat(SUBAGENT_ID_BYTES + 1))
    );
}

#[test]
fn discarded_input_is_logged_at_powers_of_two() {
    let mut discarded = DiscardCounter::default();
    let logged: Vec<u64> = (0..1_000_000)
        .filter_map(|_| discarded.increment())
        .collect();
    assert_eq!(logged[..4], [1, 2, 4, 8]);
    assert_eq!(logged.len(), 20);
}
