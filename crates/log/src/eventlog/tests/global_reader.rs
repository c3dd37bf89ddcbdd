//! Tests of the reader of many sessions.

use super::*;

async fn next_all(reader: &mut Reader) -> Item {
    in_time(reader.next()).await.expect("readable")
}

/// Returns (session, seq, position) of the next `count` events, and skips items that are not runs.
async fn events(reader: &mut Reader, count: usize) -> Vec<(SessionId, u64, u64)> {
    let mut found = Vec::new();
    while found.len() < count {
        match next_all(reader).await {
            Item::Run(run) => {
                found.extend(
                    run.events()
                        .map(|e| (run.session, e.seq(), run.pos(e.seq()))),
                );
            }
            Item::Ready { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    found
}

fn everything() -> GlobalScope {
    GlobalScope {
        owner: UserId::owner(),
        with_shared: false,
        sessions: None,
    }
}

fn only(sessions: &[(u8, Option<u64>)]) -> GlobalScope {
    let sessions = sessions
        .iter()
        .map(|(number, start)| (id(*number), *start))
        .collect();
    GlobalScope {
        owner: UserId::owner(),
        with_shared: false,
        sessions: Some(sessions),
    }
}

async fn say_and_wait(session: &SessionLog) {
    let seq = say(session, "");
    in_time(session.wait(seq)).await.unwrap();
    // The global position is published right after the session's commit.
    let shared = &session.state.shared;
    until("the global position is published", || {
        shared.published.last_pos.last() == shared.store.tail().last_pos
    })
    .await;
}

async fn both_ways(limits: Limits) {
    let log = memory_log(limits);
    let mut all = log
        .global_reader(everything(), Start::Beginning)
        .await
        .unwrap();
    assert_eq!(next_all(&mut all).await, Item::Ready { cursor: 0 });
    let a = open(&log, 1).await;
    let b = open(&log, 2).await;
    let mut expected = Vec::new();
    for n in 1..=20 {
        for session in [&a, &b] {
            say_and_wait(session).await;
            expected.push((session.session(), n, expected.len() as u64 + 1));
        }
    }
    let stranger = log
        .session(&UserId::from_text("other"), id(7))
        .await
        .unwrap();
    say_and_wait(&stranger).await;
    let new = open(&log, 3).await;
    say_and_wait(&new).await;
    expected.push((id(3), 1, 42));

    assert_eq!(
        events(&mut all, 41).await,
        expected,
        "commit order, with new sessions, without other owners"
    );
    let mut resumed = log
        .global_reader(everything(), Start::After(30))
        .await
        .unwrap();
    assert_eq!(events(&mut resumed, 11).await, expected[30..]);
    assert_eq!(next_all(&mut resumed).await, Item::Ready { cursor: 42 });

    let mut one = log
        .global_reader(only(&[(2, None), (3, None)]), Start::Beginning)
        .await
        .unwrap();
    let of_both: Vec<_> = expected
        .iter()
        .copied()
        .filter(|event| event.0 != id(1))
        .collect();
    assert_eq!(events(&mut one, 21).await, of_both);

    let mut own = log
        .global_reader(only(&[(1, Some(18)), (3, None)]), Start::Tail)
        .await
        .unwrap();
    assert_eq!(
        events(&mut own, 2).await,
        [(id(1), 19, 37), (id(1), 20, 39)],
        "starts at the session's own cursor"
    );
    assert_eq!(next_all(&mut own).await, Item::Ready { cursor: 42 });
    say_and_wait(&b).await;
    say_and_wait(&new).await;
    assert_eq!(events(&mut own, 1).await, [(id(3), 2, 44)]);

    let mut again = log
        .global_reader(only(&[(1, Some(18)), (2, Some(0))]), Start::After(38))
        .await
        .unwrap();
    assert_eq!(
        events(&mut again, 3).await,
        [(id(1), 20, 39), (id(2), 20, 40), (id(2), 21, 43)]
    );
    say_and_wait(&a).await;
    assert_eq!(events(&mut again, 1).await, [(id(1), 21, 45)]);
}

#[tokio::test]
async fn sessions_are_merged_in_commit_order() {
    both_ways(Limits::default()).await;
}

#[tokio::test]
async fn store_and_tails_yield_same_events() {
    both_ways(Limits {
        max_session_tail_bytes: 1,
        max_tail_bytes: 1,
        store_page_bytes: 300,
        ..Limits::default()
    })
    .await;
}

#[tokio::test]
async fn global_reader_sees_no_gap_and_no_duplicate() {
    const EVENTS: u64 = 300;
    for tail_bytes in [1, 2000, 1 << 20] {
        let log = memory_log(Limits {
            max_session_tail_bytes: tail_bytes,
            store_page_bytes: 700,
            max_run_bytes: 500,
            ..Limits::default()
        });
        let mut reader = log.global_reader(everything(), Start::Tail).await.unwrap();
        let mut sessions = Vec::new();
        for number in 1..=4 {
            sessions.push(open(&log, number).await);
        }
        let writing = Shutdown::new().spawn(async move {
            for n in 0..EVENTS {
                for session in &sessions {
                    say(session, "");
                }
                if n % 5 == 0 {
                    tokio::task::yield_now().await;
                }
            }
            sessions
        });
        let found = events(&mut reader, 4 * usize::try_from(EVENTS).unwrap()).await;
        for number in 1..=4 {
            let of_one = found
                .iter()
                .filter(|event| event.0 == id(number))
                .map(|event| event.1);
            assert!(of_one.eq(1..=EVENTS), "session {number}");
        }
        assert!(
            found.iter().map(|event| event.2).eq(1..=4 * EVENTS),
            "positions without a gap"
        );
        drop(in_time(writing).await.unwrap());
    }
}

#[tokio::test]
async fn unknown_cursors_reset() {
    let log = memory_log(Limits::default());
    let session = open(&log, 1).await;
    say_and_wait(&session).await;
    let unknown = Item::Reset {
        reason: ResetReason::UnknownCursor,
        before: 0,
        session: None,
    };
    let starts = [
        (everything(), Start::After(2)),
        (only(&[(1, Some(2))]), Start::Tail),
        (only(&[(1, None), (5, Some(1))]), Start::Beginning),
        (
            only(&[(1, Some(1))]),
            Start::Reset(ResetReason::UnknownCursor),
        ),
    ];
    for (scope, start) in starts {
        let mut reader = log.global_reader(scope, start).await.unwrap();
        assert_eq!(next_all(&mut reader).await, unknown);
        assert_eq!(events(&mut reader, 1).await, [(id(1), 1, 1)]);
        assert_eq!(next_all(&mut reader).await, Item::Ready { cursor: 1 });
    }
    let mut new = log
        .global_reader(only(&[(5, Some(0))]), Start::Tail)
        .await
        .unwrap();
    assert_eq!(next_all(&mut new).await, Item::Ready { cursor: 1 });
    say_and_wait(&open(&log, 5).await).await;
    assert_eq!(events(&mut new, 1).await, [(id(5), 1, 2)]);
}

#[tokio::test]
async fn erased_session_keeps_last_event() {
    let log = memory_log(Limits::default());
    let a = open(&log, 1).await;
    let b = open(&log, 2).await;
    for session in [&a, &b, &a] {
        say_and_wait(session).await;
    }
    let last = a.erase(&event(""), Records::default());
    in_time(a.wait(last)).await.unwrap();
    drop(a);
    until("the session state is freed", || {
        log.shared.sessions.get(id(1)).is_none()
    })
    .await;
    let mut reader = log
        .global_reader(everything(), Start::After(0))
        .await
        .unwrap();
    assert_eq!(events(&mut reader, 2).await, [(id(2), 1, 2), (id(1), 3, 4)]);
}
