use super::*;

/// Requests of two turns and of no turn.
async fn mixed() -> Fixture {
    let mut fixture = Fixture::new().await;
    for (method, prompt) in [
        (PERMISSION, Some(1)),
        (ELICITATION, Some(1)),
        (READ, Some(1)),
        (EXTENSION, Some(2)),
        (PERMISSION, Some(2)),
        (ELICITATION, None),
        (READ, None),
    ] {
        fixture.offer(method, prompt, Wait::Turn);
    }
    fixture
}

#[tokio::test]
async fn each_event_ends_its_requests_in_order() {
    // (event, ended requests, resolution)
    for (by, ended, resolution) in [
        (
            EndedBy::Cancel(Some(PromptId::new(1))),
            vec![1, 2, 3],
            Resolution::Cancelled,
        ),
        (
            EndedBy::Cancel(Some(PromptId::new(2))),
            vec![4, 5],
            Resolution::Cancelled,
        ),
        (
            EndedBy::Cancel(Some(PromptId::new(9))),
            vec![],
            Resolution::Cancelled,
        ),
        // Without a turn, the cancel ends background work.
        (EndedBy::Cancel(None), vec![6, 7], Resolution::Cancelled),
        (EndedBy::TurnEnd, vec![1, 2, 5, 6], Resolution::Withdrawn),
        (
            EndedBy::Release,
            vec![1, 2, 3, 4, 5, 6, 7],
            Resolution::Withdrawn,
        ),
    ] {
        let mut fixture = mixed().await;
        fixture.part.end_all(&mut fixture.journal, by);
        let resolved = fixture.take_resolved();
        let ids: Vec<u32> = resolved.iter().map(|resolved| resolved.id).collect();
        assert_eq!(ids, ended, "{by:?}");
        for resolved in resolved {
            assert_eq!(
                (resolved.resolution, resolved.at_once),
                (resolution, true),
                "{by:?}"
            );
            assert_eq!(resolved.by, None, "{by:?}");
        }
        let open: Vec<u32> = (1..=7).filter(|id| !ended.contains(id)).collect();
        assert_eq!(fixture.open(), open, "{by:?}");
    }
}

#[tokio::test]
async fn an_end_without_an_answer_has_the_response_of_its_kind() {
    for (method, expected) in [
        (PERMISSION, NONE_SELECTED),
        (ELICITATION, CANCELLED_FORM),
        (READ, "error -32800"),
        (WAIT_FOR_EXIT, "error -32800"),
        (EXTENSION, "error -32800"),
    ] {
        for resolution in [Resolution::Cancelled, Resolution::Withdrawn] {
            let mut fixture = Fixture::new().await;
            fixture.offer(method, None, Wait::Turn);
            fixture.end(1, resolution).unwrap();
            let resolved = fixture.take_resolved().remove(0);
            assert_eq!(
                (resolved.response.as_str(), resolved.resolution),
                (expected, resolution),
                "{method}"
            );
        }
    }
    let mut fixture = Fixture::new().await;
    assert!(fixture.end(1, Resolution::Withdrawn).is_none());
}

#[tokio::test]
async fn an_expired_request_has_the_response_of_its_kind() {
    for (method, expected) in [
        (PERMISSION, SELECTED_NO),
        (ELICITATION, CANCELLED_FORM),
        (READ, "error -32603"),
        (WAIT_FOR_EXIT, "error -32603"),
        (EXTENSION, "error -32601"),
    ] {
        let mut fixture = Fixture::new().await;
        fixture.offer(method, None, Wait::AtMost(seconds(10)));
        fixture.expire(9, false, 10);
        assert!(fixture.take_resolved().is_empty(), "{method}");
        fixture.expire(10, false, 10);
        let resolved = fixture.take_resolved().remove(0);
        assert_eq!(resolved.response, expected, "{method}");
        assert_eq!(
            (resolved.resolution, resolved.by),
            (Resolution::Expired, None),
            "{method}"
        );
        assert!(!resolved.at_once && fixture.open().is_empty(), "{method}");
    }
}

#[tokio::test]
async fn only_a_followed_wait_for_an_exit_is_extended() {
    // (method, a client follows the session, deadline after second 10 if the request stays open)
    for (method, is_followed, extended) in [
        (WAIT_FOR_EXIT, true, Some(17)),
        (WAIT_FOR_EXIT, false, None),
        (READ, true, None),
        (PERMISSION, true, None),
        (EXTENSION, true, None),
    ] {
        let mut fixture = Fixture::new().await;
        fixture.offer(method, None, Wait::WhileFollowed(seconds(10)));
        fixture.expire(10, is_followed, 7);
        let expired = fixture.take_resolved();
        assert_eq!(
            expired.is_empty(),
            extended.is_some(),
            "{method} {is_followed}"
        );
        assert_eq!(
            fixture.part.deadline(),
            extended.map(|at| fixture.at(at)),
            "{method} {is_followed}"
        );
    }
}

#[tokio::test]
async fn an_extended_wait_expires_after_the_last_client_stops_following() {
    let mut fixture = Fixture::new().await;
    fixture.offer(WAIT_FOR_EXIT, None, Wait::WhileFollowed(seconds(10)));
    // (second, a client follows the session, the request expires)
    for (second, is_followed, expires) in [
        (9, false, false),
        (10, true, false),
        (16, false, false),
        (17, true, false),
        (24, false, true),
    ] {
        fixture.expire(second, is_followed, 7);
        assert_eq!(!fixture.take_resolved().is_empty(), expires, "{second}");
    }
}

#[tokio::test]
async fn requests_expire_one_by_one_at_their_own_deadlines() {
    let mut fixture = Fixture::new().await;
    for wait in [
        Wait::AtMost(seconds(20)),
        Wait::Turn,
        Wait::AtMost(seconds(5)),
        Wait::WhileFollowed(seconds(10)),
        Wait::AtMost(seconds(10)),
    ] {
        fixture.offer(WAIT_FOR_EXIT, None, wait);
    }
    // (second, expired requests, next deadline)
    for (second, expected, next) in [
        (4, vec![], Some(5)),
        (5, vec![3], Some(10)),
        (10, vec![4, 5], Some(20)),
        (30, vec![1], None),
        (1000, vec![], None),
    ] {
        fixture.expire(second, false, 1);
        let expired = fixture.take_resolved();
        let expired: Vec<u32> = expired.iter().map(|resolved| resolved.id).collect();
        assert_eq!(expired, expected, "{second}");
        assert_eq!(
            fixture.part.deadline(),
            next.map(|next| fixture.at(next)),
            "{second}"
        );
    }
    assert_eq!(fixture.open(), [2]);
}
