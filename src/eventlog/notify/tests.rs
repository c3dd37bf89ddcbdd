//! Notification of waiting readers: inline, by the notifier, and by direct delivery.

use std::cell::Cell;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Wake};
use std::time::Duration;

use tokio::time::timeout;

use super::*;
use crate::eventlog::tests::in_time;
use crate::shutdown::Shutdown;

fn run(herald: &Arc<Notifier>) {
    let herald = Arc::clone(herald);
    drop(Shutdown::new().spawn(async move { herald.run().await }));
}

#[tokio::test]
async fn subscriber_via_notifier_misses_nothing() {
    let (told, herald) = (Watermark::new(1), Arc::new(Notifier::default()));
    run(&herald);
    let (mut plain, mut heeding) = (told.subscribe(), told.subscribe());
    heeding.subscribe_via(&told, &herald, None);
    for number in 2..100 {
        if number % 2 == 0 {
            // An advance before the wait is visible at once.
            told.advance(number, false);
            in_time(heeding.changed()).await;
        } else {
            let late = async {
                tokio::task::yield_now().await;
                told.advance(number, false);
            };
            tokio::join!(in_time(heeding.changed()), late);
        }
        in_time(plain.changed()).await;
        assert_eq!((heeding.observe(), plain.observe()), (number, number));
    }
}

#[tokio::test(start_paused = true)]
async fn lower_position_wakes_nobody() {
    let (told, herald) = (Watermark::new(5), Arc::new(Notifier::default()));
    let mut ear = told.subscribe();
    ear.subscribe_via(&told, &herald, None);
    told.advance(4, false);
    told.advance(5, false);
    let woken = async {
        tokio::select! {
            () = herald.run() => {}
            () = ear.changed() => {}
        }
    };
    timeout(Duration::from_secs(1), woken).await.unwrap_err();
    assert_eq!(told.last(), 5);
}

#[tokio::test]
async fn wait_list_is_freed_with_last_subscriber() {
    let (told, herald) = (Watermark::new(0), Arc::new(Notifier::default()));
    run(&herald);
    let (mut one, mut other) = (told.subscribe(), told.subscribe());
    one.subscribe_via(&told, &herald, None);
    other.subscribe_via(&told, &herald, None);
    drop(one);
    told.advance(1, false);
    in_time(other.changed()).await;
    assert_eq!((other.observe(), told.registrations().len()), (1, 1));
    drop(other);
    // A queued pass holds the wait list until the notifier has run.
    while Arc::strong_count(&told.registrations()[0].wait_list) > 1 {
        tokio::task::yield_now().await;
    }
    told.advance(2, false);
    assert_eq!(told.registrations().len(), 0);
}

#[tokio::test]
async fn all_waiters_wake_while_others_deregister() {
    let (told, herald) = (Watermark::new(0), Arc::new(Notifier::default()));
    run(&herald);
    let mut ears: Vec<_> = (0..5 * AT_ONCE).map(|_| told.subscribe()).collect();
    for ear in &mut ears {
        ear.subscribe_via(&told, &herald, None);
    }
    let bell = Arc::clone(&told.registrations()[0].wait_list);
    for number in 1..4 {
        let waits = ears.iter_mut().map(Subscription::changed);
        let all = async { drop(futures_util::future::join_all(waits).await) };
        let late = async {
            tokio::task::yield_now().await;
            told.advance(number, false);
        };
        tokio::join!(in_time(all), late);
        for ear in &mut ears {
            assert_eq!(ear.observe(), number);
        }
        // New subscribers reuse the slots of dropped ones.
        ears.truncate(4 * AT_ONCE);
        ears.drain(..AT_ONCE / 2);
        let new = (0..AT_ONCE).map(|_| {
            let mut ear = told.subscribe();
            ear.subscribe_via(&told, &herald, None);
            ear
        });
        ears.extend(new);
    }
    // Read before the assertion: a panic that poisons the lock would abort the process.
    let seats = || {
        let seats = bell.waiters();
        (seats.all.len(), seats.free.len())
    };
    let taken = seats();
    assert_eq!(taken, (ears.len(), 0), "free slots are reused");
    ears.clear();
    let taken = seats();
    assert_eq!(taken, (0, 0), "no slots remain for dropped subscribers");
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
        lock_or_abort(self.deliveries.lock()).pop().unwrap_or(Delivery::CaughtUp)
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
        self.0.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
    }

    fn is_woken(&self) -> bool {
        self.1.0.load(Ordering::Relaxed)
    }
}

/// Waits until the notifier has completed all passes.
async fn wait_until_idle(told: &Watermark) {
    let is_over = |hung: &Registration| *hung.wait_list.pass() == PassState::Idle;
    in_time(async {
        while !told.registrations().iter().all(is_over) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

fn subscribe_with_sink(
    told: &Watermark,
    herald: &Arc<Notifier>,
    what: Vec<Delivery>,
) -> (Subscription, Arc<FakeSink>) {
    let takes = Arc::new(FakeSink { deliveries: what.into(), ..FakeSink::default() });
    let mut ear = told.subscribe();
    ear.subscribe_via(told, herald, Some(Arc::<FakeSink>::clone(&takes)));
    (ear, takes)
}

#[tokio::test]
async fn task_is_woken_when_sink_cannot_deliver() {
    let (told, herald) = (Watermark::new(0), Arc::new(Notifier::default()));
    run(&herald);
    let (mut ear, takes) =
        subscribe_with_sink(&told, &herald, vec![Delivery::WakeTask, Delivery::More, Delivery::CaughtUp]);
    let mut moved = ManualPoll::new(ear.changed());
    told.advance(1, false);
    wait_until_idle(&told).await;
    assert_eq!(takes.calls(), 0, "the task does not wait yet");
    // An advance before the wait completes it.
    assert!(moved.poll());
    drop(moved);
    assert_eq!(ear.observe(), 1);

    let mut moved = ManualPoll::new(ear.changed());
    assert!(!moved.poll());
    told.advance(2, false);
    takes.wait_for_calls(1).await;
    assert!(!moved.is_woken(), "the sink delivered all");
    told.advance(3, false);
    takes.wait_for_calls(3).await;
    assert!(moved.is_woken(), "the sink delivered a part and then requested the task");
    assert!(moved.poll());
    assert_eq!(takes.calls(), 3);
}

#[tokio::test]
async fn few_sinks_are_notified_inline() {
    let (told, herald) = (Watermark::new(0), Arc::new(Notifier::default()));
    let mut all: Vec<_> = (0..FEW).map(|_| subscribe_with_sink(&told, &herald, Vec::new())).collect();
    let mut waits: Vec<_> = all.iter_mut().map(|(ear, _)| ManualPoll::new(ear.changed())).collect();
    assert!(waits.iter_mut().all(|wait| !wait.poll()));
    drop(waits);
    told.advance(1, true);
    assert!(
        all.iter().all(|(_, takes)| takes.calls() == 1),
        "delivered inline: the notifier does not run yet"
    );
    told.advance(2, false);
    assert!(all.iter().all(|(_, takes)| takes.calls() == 1), "without `inline` the notifier delivers");
    told.advance(3, true);
    assert!(all.iter().all(|(_, takes)| takes.calls() == 1), "a queued pass belongs to the notifier");
    run(&herald);
    for (_, takes) in &all {
        takes.wait_for_calls(2).await;
    }
    all.push(subscribe_with_sink(&told, &herald, Vec::new()));
    told.advance(4, true);
    assert!(all.iter().all(|(_, takes)| takes.calls() <= 2), "too many waiters for inline delivery");
    for (_, takes) in &all[..FEW] {
        takes.wait_for_calls(3).await;
    }
}

#[tokio::test]
async fn inline_limit_counts_registered_waiters_of_all_threads() {
    let told = Watermark::new(0);
    let heralds = [Arc::new(Notifier::default()), Arc::new(Notifier::default())];
    let sits = |number: usize| subscribe_with_sink(&told, &heralds[number % 2], Vec::new());
    let mut all: Vec<_> = (0..FEW + 3).map(sits).collect();
    let waits = |all: &mut Vec<(Subscription, Arc<FakeSink>)>| {
        let mut waits: Vec<_> = all.iter_mut().map(|(ear, _)| ManualPoll::new(ear.changed())).collect();
        assert!(waits.iter_mut().all(|wait| !wait.poll()));
    };
    let times = |all: &[(Subscription, Arc<FakeSink>)]| {
        all.iter().map(|(_, takes)| takes.calls()).collect::<Vec<_>>()
    };
    waits(&mut all);
    told.advance(1, true);
    assert_eq!(
        times(&all),
        [0; FEW + 3],
        "each notifier has few waiters, but together they exceed the limit"
    );
    heralds.iter().for_each(run);
    for (_, takes) in &all {
        takes.wait_for_calls(1).await;
    }
    wait_until_idle(&told).await;
    // The remaining subscribers keep their slots.
    drop(all.drain(..3));
    told.advance(2, true);
    assert_eq!(times(&all), [2; FEW], "delivered inline");
}

#[tokio::test]
async fn notifier_yields_between_batches() {
    let herald = Arc::new(Notifier::default());
    let places: Vec<_> = (0..3 * AT_ONCE).map(|_| Watermark::new(0)).collect();
    let mut all: Vec<_> = places.iter().map(|told| subscribe_with_sink(told, &herald, Vec::new())).collect();
    for (ear, _) in &mut all {
        assert!(!ManualPoll::new(ear.changed()).poll());
    }
    for told in &places {
        told.advance(1, false);
    }
    run(&herald);
    let asked = || all.iter().filter(|(_, takes)| takes.calls() == 1).count();
    tokio::task::yield_now().await;
    let before = asked();
    assert!((1..=AT_ONCE).contains(&before), "{before} sinks were called before the first yield");
    all[3 * AT_ONCE - 1].1.wait_for_calls(1).await;
    assert_eq!(asked(), 3 * AT_ONCE);
}

#[tokio::test]
async fn inline_remainder_is_left_to_notifier() {
    let (told, herald) = (Watermark::new(0), Arc::new(Notifier::default()));
    let (mut ear, takes) = subscribe_with_sink(&told, &herald, vec![Delivery::More, Delivery::More]);
    let mut moved = ManualPoll::new(ear.changed());
    assert!(!moved.poll());
    told.advance(1, true);
    assert_eq!(takes.calls(), 1);
    run(&herald);
    takes.wait_for_calls(3).await;
    assert!(!moved.is_woken());
}

#[tokio::test]
async fn repeated_advances_coalesce_and_do_not_starve_others() {
    let herald = Arc::new(Notifier::default());
    let (much, little) = (Watermark::new(0), Watermark::new(0));
    let mut many: Vec<_> = (0..10 * AT_ONCE).map(|_| much.subscribe()).collect();
    for ear in &mut many {
        ear.subscribe_via(&much, &herald, None);
    }
    let mut one = little.subscribe();
    one.subscribe_via(&little, &herald, None);
    let woken = Cell::new(0);
    let all = futures_util::future::join_all(many.iter_mut().map(async |ear| {
        ear.changed().await;
        woken.set(woken.get() + 1);
    }));
    let told = async {
        tokio::task::yield_now().await;
        for number in 1..1000 {
            much.advance(number, false);
        }
        little.advance(1, false);
        assert_eq!(lock_or_abort(herald.queued.lock()).len(), 2);
        run(&herald);
    };
    let first = async {
        one.changed().await;
        woken.get()
    };
    let (_, (), before) = tokio::join!(all, told, first);
    assert!(before <= 2 * AT_ONCE, "{before} tasks were woken before the single reader");
    // The notifier has no queued pass left.
    while Arc::strong_count(&much.registrations()[0].wait_list) > 1 + many.len() {
        tokio::task::yield_now().await;
    }
    assert_eq!(*much.registrations()[0].wait_list.pass(), PassState::Idle);
}
