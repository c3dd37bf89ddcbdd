use super::*;

#[tokio::test]
async fn an_offered_request_has_the_deadline_of_its_wait() {
    // (wait, deadline for clients in milliseconds of the wall clock, deadline in seconds)
    for (wait, shown, deadline) in [
        (Wait::AtMost(seconds(10)), Some(11_000), Some(10)),
        (Wait::WhileFollowed(seconds(10)), None, Some(10)),
        (Wait::Turn, None, None),
    ] {
        let mut fixture = Fixture::new().await;
        let request = fixture.offer(PERMISSION, Some(3), wait);
        assert_eq!(
            request.deadline.map(Timestamp::as_millis),
            shown,
            "{wait:?}"
        );
        assert_eq!(
            fixture.part.deadline(),
            deadline.map(|deadline| fixture.at(deadline)),
            "{wait:?}"
        );
    }
}

#[tokio::test]
async fn an_offered_request_is_shown_with_its_data() {
    let mut fixture = Fixture::new().await;
    assert!(!fixture.part.is_busy());
    fixture.offer(PERMISSION, Some(3), Wait::Turn);
    fixture.offer(EXTENSION, None, Wait::Turn);
    assert_eq!(fixture.open(), [1, 2]);
    let shown = fixture.part.shown().remove(0);
    assert_eq!(
        (shown.method.as_str(), shown.params.get()),
        (PERMISSION, OPTIONS)
    );
    assert_eq!(
        (shown.prompt_id, shown.subagent.as_deref()),
        (Some(PromptId::new(3)), Some("child"))
    );
    assert_eq!(shown.created_at, Timestamp::from_millis(1000));
    assert_eq!(
        fixture.part.get(RequestId::new(1)).unwrap().request_id,
        RequestId::new(1)
    );
}

#[tokio::test]
async fn a_request_is_found_by_the_id_of_the_agent_while_it_is_open() {
    let mut fixture = Fixture::new().await;
    let unknown = fixture.incoming();
    fixture.offer(PERMISSION, None, Wait::Turn);
    fixture.answer(1, "alice").unwrap();
    let incoming = fixture.take_resolved().remove(0).incoming;
    assert_eq!(
        [unknown, incoming].map(|id| fixture.part.find(id)),
        [None, None]
    );
    fixture.offer(PERMISSION, None, Wait::Turn);
    fixture.offer(PERMISSION, None, Wait::Turn);
    fixture.resolve(3, Resolution::Withdrawn).unwrap();
    let second = fixture.take_resolved().remove(0);
    assert_eq!(fixture.part.find(second.incoming), None);
    assert_eq!(fixture.open(), [2]);
}

#[tokio::test]
async fn the_first_answer_wins() {
    let mut fixture = Fixture::new().await;
    fixture.offer(PERMISSION, Some(3), Wait::Turn);
    let seq = fixture.answer(1, "alice").unwrap();
    assert_eq!(fixture.part.outbox[0].0, seq);
    let resolved = fixture.take_resolved().remove(0);
    assert_eq!(
        (resolved.id, resolved.resolution),
        (1, Resolution::Answered)
    );
    assert_eq!(
        (resolved.by.as_deref(), resolved.response.as_str()),
        (Some("alice"), "1")
    );
    assert!(fixture.answer(1, "bob").is_none());
    assert!(fixture.end(1, Resolution::Withdrawn).is_none());
    assert_eq!(fixture.error(1).unwrap(), r#"r1 Answered Some("alice")"#);
    assert!(fixture.open().is_empty());
    assert_eq!(
        fixtures::kinds(fixture.journal.log()).await,
        ["request.created", "request.resolved"]
    );
}

#[tokio::test]
async fn a_late_answer_gets_the_resolution_of_the_request() {
    type Input = fn(&mut Fixture);
    // (first input, error for a late answer)
    let rows: [(Input, &str); 6] = [
        (
            |fixture| _ = fixture.answer(1, "alice"),
            r#"r1 Answered Some("alice")"#,
        ),
        (
            |fixture| _ = fixture.resolve(1, Resolution::Policy),
            "r1 Policy None",
        ),
        (
            |fixture| _ = fixture.end(1, Resolution::Withdrawn),
            "r1 Withdrawn None",
        ),
        (
            |fixture| {
                fixture
                    .part
                    .end_all(&mut fixture.journal, EndedBy::Cancel(None));
            },
            "r1 Cancelled None",
        ),
        (
            |fixture| {
                fixture.part.end_all(&mut fixture.journal, EndedBy::Release);
            },
            "r1 Withdrawn None",
        ),
        (|fixture| fixture.expire(10, false, 1), "r1 Expired None"),
    ];
    for (input, expected) in rows {
        let mut fixture = Fixture::new().await;
        fixture.offer(PERMISSION, None, Wait::AtMost(seconds(10)));
        input(&mut fixture);
        assert_eq!(fixture.error(1).as_deref(), Some(expected));
        assert!(fixture.answer(1, "bob").is_none(), "{expected}");
    }
}

#[tokio::test]
async fn an_unknown_request_is_not_found() {
    let mut fixture = Fixture::new().await;
    fixture.offer(PERMISSION, None, Wait::Turn);
    // (id, error)
    for (id, expected) in [(0, Some("no request")), (1, None), (2, Some("no request"))] {
        assert_eq!(fixture.error(id).as_deref(), expected, "{id}");
    }
}

#[tokio::test]
async fn the_resolved_requests_in_memory_are_limited() {
    let mut fixture = Fixture::new().await;
    for id in 1..=65 {
        fixture.offer(PERMISSION, None, Wait::Turn);
        assert!(fixture.answer(id, "alice").is_some());
    }
    assert_eq!(
        fixture.error(1).unwrap(),
        "no request",
        "the store has the oldest one"
    );
    assert_eq!(fixture.error(2).unwrap(), r#"r2 Answered Some("alice")"#);
    assert_eq!(fixture.error(65).unwrap(), r#"r65 Answered Some("alice")"#);
}

#[tokio::test]
async fn only_an_end_without_a_decision_is_sent_before_its_commit() {
    for (resolution, at_once) in [
        (Resolution::Answered, false),
        (Resolution::Policy, false),
        (Resolution::Expired, false),
        (Resolution::Cancelled, true),
        (Resolution::Withdrawn, true),
        (Resolution::Disconnected, true),
    ] {
        let mut fixture = Fixture::new().await;
        fixture.offer(PERMISSION, None, Wait::Turn);
        fixture.resolve(1, resolution).unwrap();
        let resolved = fixture.take_resolved().remove(0);
        assert_eq!(resolved.at_once, at_once, "{resolution:?}");
    }
}

#[tokio::test]
async fn answers_are_sent_in_order_after_their_commit() {
    let mut fixture = Fixture::new().await;
    assert!(!fixture.part.waits_for_commit());
    let ids = [5, 6, 9].map(|seq| {
        let incoming = fixture.incoming();
        let answer = Ok(raw(&seq.to_string()));
        fixture.part.outbox.push_back((seq, incoming, answer));
        incoming
    });
    // (committed sequence number, sent answer)
    for (committed, expected) in [
        (4, None),
        (6, Some((ids[0], "5"))),
        (6, Some((ids[1], "6"))),
        (6, None),
        (8, None),
        (9, Some((ids[2], "9"))),
    ] {
        assert_eq!(
            fixture.part.waits_for_commit(),
            committed < 9 || expected.is_some()
        );
        let sent = fixture.part.take_response(committed);
        let sent = sent.map(|(incoming, outcome)| (incoming, response(&outcome)));
        assert_eq!(
            sent,
            expected.map(|(incoming, text)| (incoming, text.to_owned())),
            "{committed}"
        );
    }
    assert!(!fixture.part.waits_for_commit());
    // A response that waits for no commit does not wait for the responses before it either.
    for seq in [20, 0] {
        let incoming = fixture.incoming();
        let answer = Ok(raw(&seq.to_string()));
        fixture.part.outbox.push_back((seq, incoming, answer));
    }
    let (_, outcome) = fixture.part.take_response(9).unwrap();
    assert_eq!(response(&outcome), "0");
    assert!(fixture.part.take_response(9).is_none());
}

#[tokio::test]
async fn the_release_of_the_process_discards_its_answers() {
    let mut fixture = Fixture::new().await;
    let incoming = fixture.incoming();
    fixture.part.outbox.push_back((5, incoming, Ok(raw("1"))));
    fixture.part.process_released();
    assert!(!fixture.part.waits_for_commit() && fixture.part.take_response(9).is_none());
}

#[tokio::test]
async fn an_elicitation_completes_once() {
    let mut fixture = Fixture::new().await;
    fixture.part.elicitation_began("a".to_owned());
    for (id, known) in [("b", false), ("a", true), ("a", false)] {
        assert_eq!(fixture.part.elicitation_completed(id), known, "{id}");
    }
}

#[tokio::test]
async fn the_remembered_elicitations_are_limited() {
    let mut fixture = Fixture::new().await;
    (0..65).for_each(|id| fixture.part.elicitation_began(id.to_string()));
    for (id, known) in [("0", false), ("1", true), ("64", true)] {
        assert_eq!(fixture.part.elicitation_completed(id), known, "{id}");
    }
}
