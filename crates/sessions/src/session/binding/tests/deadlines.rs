use super::*;

const TIMEOUT: Option<Duration> = Some(Duration::from_secs(30));

impl Fixture {
    /// The effect of the deadline as text.
    fn overdue(&mut self, idle_timeout: Option<Duration>, now: Instant) -> String {
        let part = &mut self.part;
        if part
            .deadline(&limits(), idle_timeout)
            .is_none_or(|at| now < at)
        {
            return "none".to_owned();
        }
        match part.take_call() {
            Some((_, CallPurpose::SetUp(setup))) => format!("setup {:?}", setup.method),
            Some((_, CallPurpose::SignIn { load_error })) => format!("sign in {}", load_error.code),
            Some((_, CallPurpose::Release { .. })) => "release".to_owned(),
            None if part.is_attached() => "idle".to_owned(),
            None if part.is_retrying() => "retry".to_owned(),
            None => match part.restore_error() {
                None => "queue".to_owned(),
                Some(error) => format!("queue {}", error.code),
            },
        }
    }
}

#[test]
fn each_state_has_its_deadline_and_its_effect() {
    // (state, time for which an idle process is kept, deadline, effect)
    for (phase, idle_timeout, deadline, effect) in [
        (Phase::Detached, TIMEOUT, None, "none"),
        (Phase::Queued, TIMEOUT, Some(100), "queue"),
        (Phase::Retrying, TIMEOUT, Some(7), "retry"),
        (NEW, TIMEOUT, Some(60), "setup New"),
        (RESUME, None, Some(60), "setup Resume"),
        (LOAD, None, Some(60), "setup Load"),
        (FRESH, None, Some(60), "setup Fresh"),
        (Phase::SigningIn, None, Some(60), "sign in -32000"),
        (Phase::Attached, None, None, "none"),
        (Phase::Attached, TIMEOUT, Some(30), "idle"),
        (Phase::Releasing, None, Some(5), "release"),
    ] {
        let fixture = Fixture::new(phase);
        let found = fixture.part.deadline(&limits(), idle_timeout);
        assert_eq!(fixture.seconds(found), deadline, "{phase:?}");
        let at = deadline.unwrap_or(1000);
        let overdue = |seconds| {
            let mut fixture = Fixture::new(phase);
            let now = fixture.at(seconds);
            fixture.overdue(idle_timeout, now)
        };
        assert_eq!(overdue(at - 1), "none", "{phase:?}");
        assert_eq!(overdue(at), effect, "{phase:?}");
        assert_eq!(overdue(at + 1000), effect, "{phase:?}");
    }
}

#[test]
fn the_overdue_call_is_that_of_the_state() {
    for phase in [NEW, LOAD, Phase::SigningIn] {
        let mut fixture = Fixture::new(phase);
        let now = fixture.at(60);
        assert!(fixture.part.deadline(&limits(), None) <= Some(now));
        let (call, _) = fixture.part.take_call().unwrap();
        assert_eq!(call, fixture.call, "{phase:?}");
        assert!(
            fixture.part.answered(call).is_none(),
            "{phase:?}: a late response has no call"
        );
    }
}

#[test]
fn an_idle_process_is_kept_since_it_was_last_needed() {
    let mut fixture = Fixture::new(Phase::Attached);
    fixture.part.touch(fixture.at(10));
    assert_eq!(fixture.part.idle_since(), fixture.at(10));
    assert_eq!(
        fixture.seconds(fixture.part.deadline(&limits(), TIMEOUT)),
        Some(40)
    );
    fixture
        .part
        .enter_attached(SetupMethod::New, false, false, &limits(), fixture.at(50));
    assert_eq!(
        fixture.seconds(fixture.part.deadline(&limits(), TIMEOUT)),
        Some(80)
    );
}

#[test]
fn failed_attempts_limit_the_wait_in_the_queue() {
    // (time for all attempts, deadline, effect)
    for (timeout, deadline) in [(20, 20), (1000, 100)] {
        let mut fixture = Fixture::new(Phase::Detached);
        let timeout = Duration::from_secs(timeout);
        fixture
            .part
            .retry_restore(other_error(), false, timeout, fixture.base);
        fixture.part.detach();
        fixture.part.queued(fixture.base);
        assert_eq!(
            fixture.seconds(fixture.part.deadline(&limits(), None)),
            Some(deadline)
        );
        let now = fixture.at(deadline);
        assert_eq!(fixture.overdue(None, now), "queue -32603");
    }
}

#[test]
fn the_end_of_the_attempts_ends_their_limit() {
    type Input = fn(&mut Fixture);
    let inputs: [(&str, Input, u64); 4] = [
        ("detached", |fixture| fixture.part.detach(), 20),
        ("abandoned", |fixture| fixture.part.abandon(), 100),
        (
            "withdrawn",
            |fixture| {
                fixture.part.wait_until(fixture.base);
                fixture.part.release_guard();
            },
            100,
        ),
        (
            "attached",
            |fixture| {
                fixture.attach(SetupMethod::Resume);
                fixture.part.detach();
            },
            100,
        ),
    ];
    for (name, input, deadline) in inputs {
        let mut fixture = Fixture::new(Phase::Detached);
        fixture
            .part
            .retry_restore(other_error(), true, Duration::from_secs(20), fixture.base);
        assert!(fixture.part.is_in_use(), "{name}");
        input(&mut fixture);
        fixture.part.queued(fixture.base);
        assert_eq!(
            fixture.seconds(fixture.part.deadline(&limits(), None)),
            Some(deadline),
            "{name}"
        );
        assert_eq!(fixture.part.is_in_use(), deadline == 20, "{name}");
    }
}
