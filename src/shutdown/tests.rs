use super::*;

const LIMIT: Duration = Duration::from_secs(10);

#[tokio::test(start_paused = true)]
async fn the_door_shuts_when_the_work_has_ended_and_not_before() {
    let shutdown = Shutdown::new();
    let ends = |shutdown: &Shutdown| {
        let shutdown = shutdown.clone();
        async move { shutdown.closing().await }
    };
    drop(shutdown.spawn(tokio::time::sleep(Duration::from_secs(3))));
    drop(shutdown.spawn_client(ends(&shutdown)));
    shutdown.begin();
    // A client that connects during the drain does not delay the closing phase.
    drop(shutdown.spawn_confined(ends(&shutdown)));
    let began = Instant::now();
    assert!(shutdown.finished(LIMIT).await);
    assert_eq!(began.elapsed(), Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn work_that_does_not_end_is_waited_for_no_longer_than_the_limit() {
    let shutdown = Shutdown::new();
    let ended = shutdown.clone();
    drop(shutdown.spawn(async move { ended.hard().await }));
    shutdown.begin();
    let began = Instant::now();
    assert!(!shutdown.finished(LIMIT).await);
    assert_eq!(began.elapsed(), LIMIT);
    shutdown.abort();
    assert!(shutdown.finished(LIMIT).await);
}

#[tokio::test]
async fn what_blocking_work_has_begun_is_waited_for() {
    let shutdown = Shutdown::new();
    let (release, released) = std::sync::mpsc::sync_channel::<()>(0);
    let (begins, ended) = (shutdown.clone(), CancellationToken::new());
    let ends = ended.clone();
    drop(shutdown.spawn_blocking(move || {
        assert!(released.recv().is_err(), "the sender is dropped without a message");
        drop(begins.spawn(async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            ends.cancel();
        }));
    }));
    let (finished, ()) = tokio::join!(shutdown.finished(LIMIT), async { drop(release) });
    assert!(finished && ended.is_cancelled());
}
