use super::*;

type Verb = fn(&mut Fixture);

/// Checks the state after a verb in every state. `expected`: the state, if the verb changes it.
fn check(verb: Verb, expected: impl Fn(Phase) -> Option<Phase>) {
    for phase in PHASES {
        let mut fixture = Fixture::new(phase);
        verb(&mut fixture);
        assert_eq!(
            fixture.phase(),
            expected(phase).unwrap_or(phase),
            "after {phase:?}"
        );
    }
}

#[test]
fn only_a_detached_session_enters_the_queue() {
    check(
        |fixture| fixture.part.queued(fixture.base),
        |before| (before == Phase::Detached).then_some(Phase::Queued),
    );
}

#[test]
fn a_second_place_in_the_queue_does_not_extend_the_wait() {
    let mut fixture = Fixture::new(Phase::Queued);
    fixture.part.queued(fixture.at(50));
    assert_eq!(
        fixture.seconds(fixture.part.deadline(&limits(), None)),
        Some(100)
    );
}

#[test]
fn the_order_of_the_actor_replaces_every_state() {
    check(
        |fixture| fixture.part.wait_until(fixture.at(1)),
        |_| Some(Phase::Retrying),
    );
    check(|fixture| fixture.part.detach(), |_| Some(Phase::Detached));
    check(|fixture| fixture.part.abandon(), |_| Some(Phase::Detached));
    check(
        |fixture| fixture.attach(SetupMethod::Load),
        |_| Some(Phase::Attached),
    );
    check(
        |fixture| fixture.set_up(SetUp::new(SetupMethod::Fresh)),
        |_| Some(FRESH),
    );
    check(Fixture::sign_in, |_| Some(Phase::SigningIn));
    check(|fixture| fixture.release(false), |_| Some(Phase::Releasing));
}

#[test]
fn a_response_ends_the_call_of_the_state() {
    check(
        |fixture| drop(fixture.part.answered(fixture.call)),
        |before| {
            let calls = matches!(
                before,
                Phase::SettingUp(_) | Phase::SigningIn | Phase::Releasing
            );
            calls.then_some(Phase::Attached)
        },
    );
    check(
        |fixture| drop(fixture.part.answered(fixture.other_call)),
        |_| None,
    );
    for phase in PHASES {
        let mut fixture = Fixture::new(phase);
        let found = match fixture.part.answered(fixture.call) {
            Some(CallPurpose::SetUp(setup)) => Some(Phase::SettingUp(setup.method)),
            Some(CallPurpose::SignIn { .. }) => Some(Phase::SigningIn),
            Some(CallPurpose::Release { closes: true }) => Some(Phase::Releasing),
            Some(CallPurpose::Release { closes: false }) | None => None,
        };
        let calls = matches!(
            phase,
            Phase::SettingUp(_) | Phase::SigningIn | Phase::Releasing
        );
        assert_eq!(found, calls.then_some(phase));
        assert!(
            fixture.part.answered(fixture.call).is_none(),
            "{phase:?}: a call has one response"
        );
    }
}

#[test]
fn a_response_to_the_load_has_the_error_of_the_preceding_resume() {
    let mut fixture = Fixture::new(RESUME);
    fixture.set_up(SetUp::load_after(other_error()));
    let response = fixture.set_up_answered().unwrap();
    assert_eq!(response.resume.unwrap().code, error_code::INTERNAL);
    assert_eq!((response.replayed_updates, response.updates.len()), (0, 0));
}

#[test]
fn a_withdrawn_request_ends_only_the_wait_for_a_process() {
    check(
        |fixture| fixture.part.release_guard(),
        |before| matches!(before, Phase::Queued | Phase::Retrying).then_some(Phase::Detached),
    );
}

#[test]
fn a_load_signs_in_after_the_key_was_checked() {
    let mut fixture = Fixture::new(Phase::SigningIn);
    assert_eq!(fixture.part.load_sign_in(), LoadSignIn::NotTried);
    for progress in [
        LoadSignIn::KeyChecked,
        LoadSignIn::SignedIn,
        LoadSignIn::SignedIn,
    ] {
        fixture.sign_in();
        let Some(CallPurpose::SignIn { load_error }) = fixture.part.answered(fixture.call) else {
            panic!("the response to the sign-in")
        };
        assert_eq!(load_error.code, error_code::AUTH_REQUIRED);
        fixture.part.sign_in_advanced();
        assert_eq!(fixture.part.load_sign_in(), progress);
    }
    fixture.part.process_released();
    assert_eq!(
        fixture.part.load_sign_in(),
        LoadSignIn::NotTried,
        "the next process is not signed in"
    );
}

#[test]
fn each_state_has_its_properties() {
    for phase in PHASES {
        let part = Fixture::new(phase).part;
        let setup = matches!(phase, Phase::SettingUp(_) | Phase::SigningIn);
        let attached = phase == Phase::Attached;
        assert_eq!(part.is_detached(), phase == Phase::Detached, "{phase:?}");
        assert_eq!(part.is_attached(), attached, "{phase:?}");
        assert_eq!(part.is_ready(), attached, "{phase:?}");
        assert_eq!(part.is_releasing(), phase == Phase::Releasing, "{phase:?}");
        assert_eq!(
            part.needs_no_request(),
            setup || attached || phase == Phase::Retrying,
            "{phase:?}"
        );
        assert_eq!(part.waits_for_process(), !setup && !attached, "{phase:?}");
    }
}

#[test]
fn a_close_of_the_session_cancels_an_open_setup() {
    for phase in PHASES {
        let fixture = Fixture::new(phase);
        let open = matches!(phase, Phase::SettingUp(_) | Phase::SigningIn);
        assert_eq!(
            fixture.part.open_call(),
            open.then_some(fixture.call),
            "{phase:?}"
        );
    }
}

#[test]
fn a_process_can_be_reused_only_after_a_close() {
    let mut fixture = Fixture::new(Phase::Attached);
    for expected in [true, false] {
        fixture.release(expected);
        let purpose = fixture.part.answered(fixture.call);
        assert!(matches!(purpose, Some(CallPurpose::Release { closes }) if closes == expected));
    }
}

#[test]
fn a_process_is_unused_until_the_session_uses_it() {
    // (state, unused without an unsent turn, unused with an unsent turn)
    for (phase, idle, with_turn) in [
        (Phase::Detached, false, false),
        (Phase::Queued, true, true),
        (Phase::Retrying, false, false),
        (NEW, true, true),
        (LOAD, true, true),
        (Phase::SigningIn, true, true),
        (Phase::Attached, false, true),
        (Phase::Releasing, false, false),
    ] {
        let part = Fixture::new(phase).part;
        assert_eq!(
            (part.is_process_unused(false), part.is_process_unused(true)),
            (idle, with_turn),
            "{phase:?}"
        );
    }
}

#[test]
fn an_update_during_the_setup_uses_the_process() {
    // (method of the setup, the history is new to the log, unused)
    for (phase, imports, unused) in [
        (NEW, false, false),
        (FRESH, false, false),
        (LOAD, false, false),
        // Otherwise the log would contain the imported history of two processes.
        (LOAD, true, false),
        // Only a load replays history.
        (RESUME, false, true),
    ] {
        let mut fixture = Fixture::new(phase);
        if fixture.part.buffer_update(raw("{}"), &limits()).is_some() {
            let kind = update::USER_MESSAGE_CHUNK;
            fixture
                .part
                .classify_update(kind, imports, &limits(), fixture.base);
        }
        assert_eq!(
            fixture.part.is_process_unused(true),
            unused,
            "{phase:?} {imports}"
        );
    }
}

#[test]
fn a_session_replaces_a_limited_number_of_dead_processes() {
    let mut fixture = Fixture::new(Phase::Queued);
    let replace = |fixture: &mut Fixture| [1, 2, 3].map(|_| fixture.part.may_replace());
    assert_eq!(replace(&mut fixture), [true, true, false]);
    fixture.part.reset_replaced();
    assert_eq!(replace(&mut fixture), [true, true, false]);
    // (a turn waits for the process, replaced after the attach)
    for (has_turn, expected) in [(true, [false; 3]), (false, [true, true, false])] {
        fixture
            .part
            .enter_attached(SetupMethod::New, false, has_turn, &limits(), fixture.base);
        assert_eq!(replace(&mut fixture), expected, "{has_turn}");
    }
}

#[test]
fn a_release_ends_the_state_of_the_process() {
    let mut fixture = Fixture::new(Phase::Detached);
    fixture.attach(SetupMethod::Load);
    assert!(
        fixture
            .part
            .announce_subagent(&raw(r#"{"sessionId":"child"}"#))
    );
    fixture.part.process_released();
    assert!(fixture.part.is_ready(), "no replay is left");
    assert_eq!(fixture.part.replay_deadline(), None);
    assert_eq!(fixture.part.owner_of("child", None), SessionOwner::Unknown);
    assert!(
        !fixture.part.prompt_answered(true),
        "no restore is unproven"
    );
}
