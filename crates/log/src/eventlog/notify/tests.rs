//! Notification of waiting readers by the notifier, and by direct delivery.

use std::cell::Cell;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Wake};
use std::time::Duration;

use tokio::time::timeout;

use super::*;
use crate::eventlog::testing::in_time;
use base::shutdown::Shutdown;

fn run(notifier: &Arc<Notifier>) {
    let notifier = Arc::clone(notifier);
    drop(Shutdown::new().spawn(async move { notifier.run().await }));
}

#[tokio::test]
async fn subscriber_via_notifier_receives_every_event() {
    let watermark = Watermark::new(1);
    let notifier = Arc::new(Notifier::default());
    run(&notifier);
    let mut plain = watermark.subscribe();
    let mut follower = watermark.subscribe();
    follower.subscribe_via(&watermark, &notifier, None);
    for number in 2..100 {
        if number % 2 == 0 {
            // An advance before the wait is visible at once.
            watermark.advance(number);
            in_time(follower.changed()).await;
        } else {
            let late = async {
                tokio::task::yield_now().await;
                watermark.advance(number);
            };
            tokio::join!(in_time(follower.changed()), late);
        }
        in_time(plain.changed()).await;
        assert_eq!((follower.observe(), plain.observe()), (number, number));
    }
}

#[tokio::test(start_paused = true)]
async fn lower_position_wakes_no_reader() {
    let watermark = Watermark::new(5);
    let notifier = Arc::new(Notifier::default());
    let mut subscription = watermark.subscribe();
    subscription.subscribe_via(&watermark, &notifier, None);
    watermark.advance(4);
    watermark.advance(5);
    let woken = async {
        tokio::select! {
            () = notifier.run() => {}
            () = subscription.changed() => {}
        }
    };
    timeout(Duration::from_secs(1), woken).await.unwrap_err();
    assert_eq!(watermark.last(), 5);
}

#[tokio::test]
async fn wait_list_is_freed_with_last_subscriber() {
    let watermark = Watermark::new(0);
    let notifier = Arc::new(Notifier::default());
    run(&notifier);
    let mut one = watermark.subscribe();
    let mut other = watermark.subscribe();
    one.subscribe_via(&watermark, &notifier, None);
    other.subscribe_via(&watermark, &notifier, None);
    drop(one);
    watermark.advance(1);
    in_time(other.changed()).await;
    assert_eq!((other.observe(), watermark.registrations().len()), (1, 1));
    drop(other);
    // A queued pass holds the wait list until the notifier has run.
    while Arc::strong_count(&watermark.registrations()[0].wait_list) > 1 {
        tokio::task::yield_now().await;
    }
    watermark.advance(2);
    assert_eq!(watermark.registrations().len(), 0);
}

#[tokio::test]
async fn all_waiters_wake_while_others_deregister() {
    let watermark = Watermark::new(0);
    let notifier = Arc::new(Notifier::default());
    run(&notifier);
    let mut subscriptions: Vec<_> = (0..5 * AT_ONCE).map(|_| watermark.subscribe()).collect();
    for subscription in &mut subscriptions {
        subscription.subscribe_via(&watermark, &notifier, None);
    }
    let wait_list = Arc::clone(&watermark.registrations()[0].wait_list);
    for number in 1..4 {
        let waits = subscriptions.iter_mut().map(Subscription::changed);
        let all = async { drop(futures_util::future::join_all(waits).await) };
        let late = async {
            tokio::task::yield_now().await;
            watermark.advance(number);
        };
        tokio::join!(in_time(all), late);
        for subscription in &mut subscriptions {
            assert_eq!(subscription.observe(), number);
        }
        // New subscribers reuse the slots of dropped ones.
        subscriptions.truncate(4 * AT_ONCE);
        subscriptions.drain(..AT_ONCE / 2);
        let new = (0..AT_ONCE).map(|_| {
            let mut subscription = watermark.subscribe();
            subscription.subscribe_via(&watermark, &notifier, None);
            subscription
        });
        subscriptions.extend(new);
    }
    // Read before the assertion: a panic that poisons the lock would abort the process.
    let waiters = || {
        let waiters = wait_list.waiters();
        (waiters.all.len(), waiters.free.len())
    };
    let counts = waiters();
    assert_eq!(counts, (subscriptions.len(), 0), "free slots are reused");
    subscriptions.clear();
    let counts = waiters();
    assert_eq!(counts, (0, 0), "no slots remain for dropped subscribers");
}

/// A sink that returns these results, last first, and then `CaughtUp`.
#[derive(Debug, Default)]
struct FakeSink {
    deliveries: Mutex<Vec<Delivery>>,
    calls: AtomicUsize,
}

impl FakeSink {
    fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    async fn wait_for_calls(&self, times: usize) {
        in_time(async {
            while self.calls() < times {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

impl DirectSink for FakeSink {
    fn try_deliver(&self) -> Delivery {
        self.calls.fetch_add(1, Ordering::Relaxed);
        lock_or_abort(self.deliveries.lock())
            .pop()
            .unwrap_or(Delivery::CaughtUp)
    }
}

/// A future that only the test polls. `poll` returns true when it is ready.
struct ManualPoll<F>(Pin<Box<F>>, Arc<Flag>);

#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl<F: Future<Output = ()>> ManualPoll<F> {
    fn new(wait: F) -> Self {
        Self(Box::pin(wait), Arc::default())
    }

    fn poll(&mut self) -> bool {
        let waker = Arc::clone(&self.1).into();
        self.0
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_ready()
    }

    fn is_woken(&self) -> bool {
        self.1.0.load(Ordering::Relaxed)
    }
}

/// Waits until the notifier has completed all passes.
async fn wait_until_idle(watermark: &Watermark) {
    let is_over = |registration: &Registration| *registration.wait_list.pass() == PassState::Idle;
    in_time(async {
        while !watermark.registrations().iter().all(is_over) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

fn subscribe_with_sink(
    watermark: &Watermark,
    notifier: &Arc<Notifier>,
    what: Vec<Delivery>,
) -> (Subscription, Arc<FakeSink>) {
    let sink = Arc::new(FakeSink {
        deliveries: what.into(),
        ..FakeSink::default()
    });
    let mut subscription = watermark.subscribe();
    subscription.subscribe_via(watermark, notifier, Some(Arc::<FakeSink>::clone(&sink)));
    (subscription, sink)
}

#[tokio::test]
async fn task_is_woken_when_sink_cannot_deliver() {
    let watermark = Watermark::new(0);
    let notifier = Arc::new(Notifier::default());
    run(&notifier);
    let (mut subscription, sink) = subscribe_with_sink(
        &watermark,
        &notifier,
        vec![Delivery::WakeTask, Delivery::More, Delivery::CaughtUp],
    );
    let mut moved = ManualPoll::new(subscription.changed());
    watermark.advance(1);
    wait_until_idle(&watermark).await;
    assert_eq!(sink.calls(), 0, "the task does not wait yet");
    // An advance before the wait completes it.
    assert!(moved.poll());
    drop(moved);
    assert_eq!(subscription.observe(), 1);

    let mut moved = ManualPoll::new(subscription.changed());
    assert!(!moved.poll());
    watermark.advance(2);
    sink.wait_for_calls(1).await;
    assert!(!moved.is_woken(), "the sink delivered all");
    watermark.advance(3);
    sink.wait_for_calls(3).await;
    assert!(
        moved.is_woken(),
        "the sink delivered a part and then requested the task"
    );
    assert!(moved.poll());
    assert_eq!(sink.calls(), 3);
}

#[tokio::test]
async fn notifier_yields_between_batches() {
    let notifier = Arc::new(Notifier::default());
    let places: Vec<_> = (0..3 * AT_ONCE).map(|_| Watermark::new(0)).collect();
    let mut all: Vec<_> = places
        .iter()
        .map(|watermark| subscribe_with_sink(watermark, &notifier, Vec::new()))
        .collect();
    for (subscription, _) in &mut all {
        assert!(!ManualPoll::new(subscription.changed()).poll());
    }
    for watermark in &places {
        watermark.advance(1);
    }
    run(&notifier);
    let asked = || all.iter().filter(|(_, sink)| sink.calls() == 1).count();
    tokio::task::yield_now().await;
    let before = asked();
    assert!(
        (1..=AT_ONCE).contains(&before),
        "{before} sinks were called before the first yield"
    );
    all[3 * AT_ONCE - 1].1.wait_for_calls(1).await;
    assert_eq!(asked(), 3 * AT_ONCE);
}

#[tokio::test]
async fn repeated_advances_coalesce_and_do_not_starve_others() {
    let notifier = Arc::new(Notifier::default());
    let much = Watermark::new(0);
    let little = Watermark::new(0);
    let mut many: Vec<_> = (0..10 * AT_ONCE).map(|_| much.subscribe()).collect();
    for subscription in &mut many {
        subscription.subscribe_via(&much, &notifier, None);
    }
    let mut one = little.subscribe();
    one.subscribe_via(&little, &notifier, None);
    let woken = Cell::new(0);
    let all = futures_util::future::join_all(many.iter_mut().map(async |subscription| {
        subscription.changed().await;
        woken.set(woken.get() + 1);
    }));
    let watermark = async {
        tokio::task::yield_now().await;
        for number in 1..1000 {
            much.advance(number);
        }
        little.advance(1);
        assert_eq!(lock_or_abort(notifier.queued.lock()).len(), 2);
        run(&notifier);
    };
    let first = async {
        one.changed().await;
        woken.get()
    };
    let (_, (), before) = tokio::join!(all, watermark, first);
    assert!(
        before <= 2 * AT_ONCE,
        "{before} tasks were woken before the single reader"
    );
    // The notifier has no queued pass left.
    while Arc::strong_count(&much.registrations()[0].wait_list) > 1 + many.len() {
        tokio::task::yield_now().await;
    }
    assert_eq!(*much.registrations()[0].wait_list.pass(), PassState::Idle);
}
