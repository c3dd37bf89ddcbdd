use super::*;

const LIMIT: Duration = Duration::from_secs(10);

#[tokio::test(start_paused = true)]
async fn closing_starts_when_work_tasks_have_ended() {
    let shutdown = Shutdown::new();
    let ends = |shutdown: &Shutdown| {
        let shutdown = shutdown.clone();
        async move { shutdown.closing_started().await }
    };
    drop(shutdown.spawn(tokio::time::sleep(Duration::from_secs(3))));
    drop(shutdown.spawn_client(ends(&shutdown)));
    shutdown.start_drain();
    // A client that connects during the drain does not delay the closing phase.
    drop(shutdown.spawn_isolated(ends(&shutdown)));
    let began = Instant::now();
    assert!(shutdown.wait_for_tasks(LIMIT).await);
    assert_eq!(began.elapsed(), Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn wait_for_tasks_returns_false_after_the_limit() {
    let shutdown = Shutdown::new();
    let ended = shutdown.clone();
    drop(shutdown.spawn(async move { ended.abort_started().await }));
    shutdown.start_drain();
    let began = Instant::now();
    assert!(!shutdown.wait_for_tasks(LIMIT).await);
    assert_eq!(began.elapsed(), LIMIT);
    shutdown.abort();
    assert!(shutdown.wait_for_tasks(LIMIT).await);
}

#[tokio::test]
async fn wait_for_tasks_includes_tasks_of_blocking_work() {
    let shutdown = Shutdown::new();
    let (release, released) = std::sync::mpsc::sync_channel::<()>(0);
    let begins = shutdown.clone();
    let ended = CancellationToken::new();
    let ends = ended.clone();
    drop(shutdown.spawn_blocking(move || {
        assert!(
            released.recv().is_err(),
            "the sender is dropped without a message"
        );
        drop(begins.spawn(async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            ends.cancel();
        }));
    }));
    let (finished, ()) = tokio::join!(shutdown.wait_for_tasks(LIMIT), async { drop(release) });
    assert!(finished && ended.is_cancelled());
}
