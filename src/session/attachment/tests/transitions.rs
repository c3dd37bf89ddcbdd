use super::*;

type Verb = fn(&mut Fixture);

/// Checks the state after a verb in every state. `expected`: the state, if the verb changes it.
fn check(verb: Verb, expected: impl Fn(Phase) -> Option<Phase>) {
    for phase in PHASES {
        let mut fixture = Fixture::new(phase);
        verb(&mut fixture);
        assert_eq!(fixture.phase(), expected(phase).unwrap_or(phase), "after {phase:?}");
    }
}

#[test]
fn only_a_detached_session_enters_the_queue() {
    check(
        |fixture| fixture.part.enqueue(fixture.base),
        |before| (before == Phase::Detached).then_some(Phase::Queued),
    );
}

#[test]
fn a_second_place_in_the_queue_does_not_extend_the_wait() {
    let mut fixture = Fixture::new(Phase::Queued);
    fixture.part.enqueue(fixture.at(50));
    assert_eq!(fixture.seconds(fixture.part.deadline(&limits(), None)), Some(100));
}

#[test]
fn the_order_of_the_actor_replaces_every_state() {
    check(|fixture| fixture.part.wait_until(fixture.at(1)), |_| Some(Phase::Retrying));
    check(|fixture| fixture.part.detach(), |_| Some(Phase::Detached));
    check(|fixture| fixture.part.abandon(), |_| Some(Phase::Detached));
    check(|fixture| fixture.attach(AttachMethod::Load), |_| Some(Phase::Attached));
    check(
        |fixture| fixture.part.set_up(AttachMethod::Fresh, None, fixture.call, fixture.at(1)),
        |_| Some(FRESH),
    );
    check(
        |fixture| fixture.part.sign_in(fixture.call, fixture.at(1), auth_required()),
        |_| Some(Phase::SigningIn),
    );
    check(
        |fixture| fixture.part.begin_release(fixture.call, fixture.at(1), false),
        |_| Some(Phase::Releasing),
    );
}

#[test]
fn a_response_to_the_setup_needs_a_setup() {
    check(
        |fixture| drop(fixture.part.setup_answered()),
        |before| matches!(before, Phase::SettingUp(_)).then_some(Phase::Attached),
    );
    for phase in PHASES {
        let response = Fixture::new(phase).part.setup_answered().map(|response| response.method);
        let expected = if let Phase::SettingUp(method) = phase { Some(method) } else { None };
        assert_eq!(response, expected, "{phase:?}");
    }
}

#[test]
fn a_response_to_the_load_has_the_error_of_the_preceding_resume() {
    let mut fixture = Fixture::new(RESUME);
    fixture.part.set_up(AttachMethod::Load, Some(other_error()), fixture.call, fixture.at(1));
    let response = fixture.part.setup_answered().unwrap();
    assert_eq!(response.resume.unwrap().code, error_code::INTERNAL);
    assert_eq!((response.replayed_updates, response.updates.len()), (0, 0));
}

#[test]
fn a_withdrawn_request_ends_only_the_wait_for_a_process() {
    check(
        |fixture| fixture.part.withdraw_request(),
        |before| matches!(before, Phase::Queued | Phase::Retrying).then_some(Phase::Detached),
    );
}

#[test]
fn a_response_to_the_sign_in_needs_a_sign_in() {
    for succeeded in [true, false] {
        for phase in PHASES {
            let mut fixture = Fixture::new(phase);
            let refusal = fixture.part.sign_in_answered(succeeded);
            let signing_in = phase == Phase::SigningIn;
            assert_eq!(refusal.is_some(), signing_in && !succeeded, "{phase:?}");
            assert_eq!(fixture.phase(), if signing_in { Phase::Attached } else { phase });
            let progress =
                if signing_in && succeeded { LoadSignIn::KeyChecked } else { LoadSignIn::NotTried };
            assert_eq!(fixture.part.load_sign_in(), progress, "{phase:?}");
        }
    }
}

#[test]
fn a_load_signs_in_after_the_key_was_checked() {
    let mut fixture = Fixture::new(Phase::Detached);
    // (the step succeeded, progress)
    for (succeeded, progress) in [
        (false, LoadSignIn::NotTried),
        (true, LoadSignIn::KeyChecked),
        (false, LoadSignIn::KeyChecked),
        (true, LoadSignIn::SignedIn),
        (true, LoadSignIn::SignedIn),
    ] {
        fixture.part.sign_in(fixture.call, fixture.at(1), auth_required());
        let refusal = fixture.part.sign_in_answered(succeeded);
        assert_eq!(refusal.map(|error| error.code), (!succeeded).then_some(error_code::AUTH_REQUIRED));
        assert_eq!(fixture.part.load_sign_in(), progress);
    }
    fixture.part.process_released();
    assert_eq!(fixture.part.load_sign_in(), LoadSignIn::NotTried, "the next process is not signed in");
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
        assert_eq!(part.needs_no_request(), setup || attached || phase == Phase::Retrying, "{phase:?}");
        assert_eq!(part.waits_for_process(), !setup && !attached, "{phase:?}");
    }
}

#[test]
fn a_response_finds_its_call() {
    for phase in PHASES {
        let fixture = Fixture::new(phase);
        let (of, open) = match phase {
            Phase::SettingUp(_) => (Some(CallOf::Setup), Some(fixture.call)),
            Phase::SigningIn => (Some(CallOf::SignIn), Some(fixture.call)),
            Phase::Releasing => (Some(CallOf::Release { closes: true }), None),
            _ => (None, None),
        };
        assert_eq!(fixture.part.call_of(fixture.call), of, "{phase:?}");
        assert_eq!(fixture.part.call_of(fixture.other_call), None, "{phase:?}");
        assert_eq!(fixture.part.open_call(), open, "{phase:?}");
    }
}

#[test]
fn a_process_can_be_reused_only_after_a_close() {
    let mut fixture = Fixture::new(Phase::Attached);
    for closes in [true, false] {
        fixture.part.begin_release(fixture.call, fixture.at(5), closes);
        assert_eq!(fixture.part.call_of(fixture.call), Some(CallOf::Release { closes }));
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
            fixture.part.classify_update(kind, imports, &limits(), fixture.base);
        }
        assert_eq!(fixture.part.is_process_unused(true), unused, "{phase:?} {imports}");
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
        fixture.part.attached(AttachMethod::New, false, has_turn, &limits(), fixture.base);
        assert_eq!(replace(&mut fixture), expected, "{has_turn}");
    }
}

#[test]
fn a_release_ends_the_state_of_the_process() {
    let mut fixture = Fixture::new(Phase::Detached);
    fixture.attach(AttachMethod::Load);
    assert!(fixture.part.announce_subagent(&raw(r#"{"sessionId":"child"}"#)));
    fixture.part.process_released();
    assert!(fixture.part.is_ready(), "no replay is left");
    assert_eq!(fixture.part.replay_deadline(), None);
    assert_eq!(fixture.part.owner_of("child", None), SessionOwner::Unknown);
    assert!(!fixture.part.prompt_answered(true), "no restore is unproven");
}
