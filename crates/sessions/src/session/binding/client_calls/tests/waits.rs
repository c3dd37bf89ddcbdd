use super::*;

#[test]
fn each_client_needs_a_process_or_the_agent() {
    // (clients, waits for a process, wants an existing session, attaches, busy)
    for (clients, expected) in [
        (&[][..], (false, false, false, false)),
        (&[Creating(1)], (true, false, false, false)),
        (&[Attaching(1)], (true, true, true, false)),
        (&[Queued(1)], (true, true, false, true)),
        (&[Sent(1)], (false, false, false, true)),
        (&[Creating(1), Sent(1)], (true, false, false, true)),
        (&[Attaching(1), Queued(1)], (true, true, true, true)),
    ] {
        let part = Fixture::new(clients).part;
        let found = (
            part.has_waiters(),
            part.wants_attached(),
            part.is_attaching(),
            part.is_busy(),
        );
        assert_eq!(found, expected, "{clients:?}");
    }
}

#[test]
fn only_an_adopted_or_forked_session_imports_history() {
    for (origin, imports) in [
        (None, false),
        (Some(Origin::New), false),
        (Some(Origin::Adopted), true),
        (Some(Origin::Forked(session())), true),
    ] {
        let mut fixture = Fixture::new(&[]);
        if let Some(origin) = origin {
            fixture.create(origin, 1, None);
        }
        assert_eq!(
            (fixture.part.origin(), fixture.part.imports_history()),
            (origin, imports)
        );
        assert_eq!(fixture.part.take_creating().is_some(), origin.is_some());
        assert!(fixture.part.take_creating().is_none() && !fixture.part.imports_history());
    }
}

#[test]
fn clients_without_a_process_have_deadlines_of_their_own() {
    // (clients, deadline while the session waits for a process, deadline with a process)
    for (clients, waiting, with_process) in [
        (&[][..], None, None),
        (&[Creating(5)], Some(5), None),
        (&[Attaching(5)], Some(5), None),
        (&[Queued(5)], Some(5), None),
        (&[Sent(5)], Some(5), Some(5)),
        (
            &[Creating(30), Attaching(20), Queued(10), Sent(40)],
            Some(10),
            Some(40),
        ),
        (
            &[Attaching(20), Attaching(10), Sent(4), Sent(3)],
            Some(3),
            Some(3),
        ),
    ] {
        let fixture = Fixture::new(clients);
        let deadline = |waits| fixture.part.deadline(waits).map(|at| fixture.seconds(at));
        assert_eq!(
            (deadline(true), deadline(false)),
            (waiting, with_process),
            "{clients:?}"
        );
    }
}

#[test]
fn overdue_waits_expire_together() {
    let clients = [
        Creating(10),
        Attaching(10),
        Attaching(20),
        Queued(5),
        Queued(20),
    ];
    // (second, expired clients, remaining clients)
    for (second, expired, remaining) in [
        (4, vec![], clients.to_vec()),
        (
            5,
            vec![Queued(5)],
            vec![Creating(10), Attaching(10), Attaching(20), Queued(20)],
        ),
        (
            10,
            vec![Creating(10), Attaching(10), Queued(5)],
            vec![Attaching(20), Queued(20)],
        ),
        (20, clients.to_vec(), vec![]),
    ] {
        let mut fixture = Fixture::new(&clients);
        let now = fixture.at(second);
        assert_eq!(
            fixture.part.is_wait_overdue(now),
            !expired.is_empty(),
            "{second}"
        );
        let waiters = fixture.part.expire_waits(now);
        assert_eq!(fixture.waiters(&waiters), expired, "{second}");
        assert!(!fixture.part.is_wait_overdue(now), "{second}");
        assert_eq!(fixture.take(), remaining, "{second}");
    }
}

#[test]
fn the_start_of_a_process_extends_only_shorter_waits() {
    let mut fixture = Fixture::new(&[Creating(5), Attaching(40), Queued(5), Queued(29), Sent(5)]);
    fixture
        .part
        .extend_waits(fixture.at(10), Duration::from_secs(20));
    assert_eq!(
        fixture.part.deadline(false),
        Some(fixture.at(5)),
        "the agent has its own limit"
    );
    assert_eq!(
        fixture.take(),
        [Creating(30), Attaching(40), Queued(30), Queued(30)]
    );
}

#[test]
fn clients_are_served_in_order_of_arrival() {
    let clients = [
        Attaching(3),
        Attaching(1),
        Queued(2),
        Queued(9),
        Queued(4),
        Sent(5),
    ];
    let mut fixture = Fixture::new(&clients);
    let attaching: Vec<u64> = fixture
        .part
        .take_attaching()
        .iter()
        .map(|waiter| fixture.seconds(waiter.deadline))
        .collect();
    let queued: Vec<u64> = fixture
        .part
        .take_queued()
        .iter()
        .map(|call| fixture.seconds(call.deadline))
        .collect();
    assert_eq!((attaching, queued), (vec![3, 1], vec![2, 9, 4]));
    assert!(
        !fixture.part.has_waiters() && fixture.part.is_busy(),
        "the sent call waits for the agent"
    );
    assert_eq!(Fixture::new(&clients).take(), clients[..5]);
}

#[test]
fn the_first_client_with_a_trace_context_causes_the_setup() {
    let parents = [1, 2, 3].map(|number| PARENT.replacen('4', &number.to_string(), 1));
    let [first, second, third] = parents.each_ref().map(|parent| Some(parent.as_str()));
    // (trace context of the creating, the attaching and the queued client, trace context of the setup)
    for (creating, attaching, queued, expected) in [
        (None, None, None, None),
        (first, second, third, first),
        (None, second, third, second),
        (None, None, third, third),
    ] {
        let mut fixture = Fixture::new(&[]);
        fixture.add(Queued(1), queued);
        fixture.add(Attaching(1), attaching);
        fixture.add(Creating(1), creating);
        assert_eq!(
            fixture.part.trace().map(TraceContext::traceparent),
            expected
        );
    }
}

#[test]
fn a_sent_call_has_the_deadline_of_its_kind() {
    let limits = Limits {
        session_new_timeout: Duration::from_mins(1),
        session_close_timeout: Duration::from_secs(5),
        ..Limits::default()
    };
    for call in calls() {
        let expected = if matches!(call, ClientCall::Forked(_)) {
            7
        } else {
            62
        };
        let mut fixture = Fixture::new(&[]);
        let id = fixture.calls.register_call();
        let method = call.method().to_owned();
        // The deadline of the queue no longer counts.
        let call = fixture.call(call, 1);
        fixture.part.sent(id, call, &limits, fixture.at(2));
        assert_eq!(
            fixture.part.deadline(false),
            Some(fixture.at(expected)),
            "{method}"
        );
    }
}

#[test]
fn a_response_answers_its_call_once() {
    let mut fixture = Fixture::new(&[]);
    let ids = [1, 2].map(|_| {
        let id = fixture.calls.register_call();
        let call = fixture.call(ClientCall::Fork, 0);
        fixture
            .part
            .sent(id, call, &Limits::default(), fixture.base);
        id
    });
    let unknown = fixture.calls.register_call();
    assert!(fixture.part.answered(unknown).is_none());
    assert!(fixture.part.answered(ids[0]).is_some() && fixture.part.answered(ids[0]).is_none());
    assert_eq!(
        fixture.part.take_sent().into_keys().collect::<Vec<_>>(),
        [ids[1]]
    );
    assert!(!fixture.part.is_busy());
}

#[test]
fn overdue_calls_expire_one_by_one() {
    let mut fixture = Fixture::new(&[Sent(5), Sent(10), Sent(10), Sent(20), Queued(5)]);
    // (second, expired calls, next deadline)
    for (second, expired, next) in [
        (4, 0, Some(5)),
        (5, 1, Some(10)),
        (10, 2, Some(20)),
        (30, 1, None),
    ] {
        let now = fixture.at(second);
        let calls: Vec<CallId> = std::iter::from_fn(|| fixture.part.expire_sent(now))
            .map(|(id, _)| id)
            .collect();
        assert_eq!(calls.len(), expired, "{second}");
        assert!(
            calls
                .into_iter()
                .all(|id| fixture.part.answered(id).is_none()),
            "a late response has no call"
        );
        assert_eq!(
            fixture.part.deadline(false),
            next.map(|next| fixture.at(next)),
            "{second}"
        );
    }
}
