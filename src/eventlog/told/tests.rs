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

fn run(herald: &Arc<Herald>) {
    let herald = Arc::clone(herald);
    drop(Shutdown::new().spawn(async move { herald.run().await }));
}

#[tokio::test]
async fn who_heeds_a_herald_misses_nothing() {
    let (told, herald) = (Told::new(1), Arc::new(Herald::default()));
    run(&herald);
    let (mut plain, mut heeding) = (told.ear(), told.ear());
    heeding.heeds(&told, &herald, None);
    for number in 2..100 {
        if number % 2 == 0 {
            // An advance before the wait is visible at once.
            told.tell(number, false);
            in_time(heeding.moved()).await;
        } else {
            let late = async {
                tokio::task::yield_now().await;
                told.tell(number, false);
            };
            tokio::join!(in_time(heeding.moved()), late);
        }
        in_time(plain.moved()).await;
        assert_eq!((heeding.look(), plain.look()), (number, number));
    }
}

#[tokio::test(start_paused = true)]
async fn an_earlier_number_wakes_nobody() {
    let (told, herald) = (Told::new(5), Arc::new(Herald::default()));
    let mut ear = told.ear();
    ear.heeds(&told, &herald, None);
    told.tell(4, false);
    told.tell(5, false);
    let woken = async {
        tokio::select! {
            () = herald.run() => {}
            () = ear.moved() => {}
        }
    };
    timeout(Duration::from_secs(1), woken).await.unwrap_err();
    assert_eq!(told.last(), 5);
}

#[tokio::test]
async fn a_bell_goes_with_the_last_who_hears_it() {
    let (told, herald) = (Told::new(0), Arc::new(Herald::default()));
    run(&herald);
    let (mut one, mut other) = (told.ear(), told.ear());
    one.heeds(&told, &herald, None);
    other.heeds(&told, &herald, None);
    drop(one);
    told.tell(1, false);
    in_time(other.moved()).await;
    assert_eq!((other.look(), told.bells().len()), (1, 1));
    drop(other);
    // A queued pass holds the wait list until the notifier has run.
    while Arc::strong_count(&told.bells()[0].bell) > 1 {
        tokio::task::yield_now().await;
    }
    told.tell(2, false);
    assert_eq!(told.bells().len(), 0);
}

#[tokio::test]
async fn everybody_is_woken_however_many_there_are_and_whoever_left() {
    let (told, herald) = (Told::new(0), Arc::new(Herald::default()));
    run(&herald);
    let mut ears: Vec<_> = (0..5 * AT_ONCE).map(|_| told.ear()).collect();
    for ear in &mut ears {
        ear.heeds(&told, &herald, None);
    }
    let bell = Arc::clone(&told.bells()[0].bell);
    for number in 1..4 {
        let waits = ears.iter_mut().map(Ear::moved);
        let all = async { drop(futures_util::future::join_all(waits).await) };
        let late = async {
            tokio::task::yield_now().await;
            told.tell(number, false);
        };
        tokio::join!(in_time(all), late);
        for ear in &mut ears {
            assert_eq!(ear.look(), number);
        }
        // New subscribers reuse the slots of dropped ones.
        ears.truncate(4 * AT_ONCE);
        ears.drain(..AT_ONCE / 2);
        let new = (0..AT_ONCE).map(|_| {
            let mut ear = told.ear();
            ear.heeds(&told, &herald, None);
            ear
        });
        ears.extend(new);
    }
    // Read before the assertion: a panic that poisons the lock would abort the process.
    let seats = || {
        let seats = bell.seats();
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
struct Takes {
    what: Mutex<Vec<Took>>,
    times: AtomicUsize,
}

impl Takes {
    fn times(&self) -> usize {
        self.times.load(Ordering::Relaxed)
    }

    async fn was_asked(&self, times: usize) {
        in_time(async {
            while self.times() < times {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

impl Outlet for Takes {
    fn take(&self) -> Took {
        self.times.fetch_add(1, Ordering::Relaxed);
        sound(self.what.lock()).pop().unwrap_or(Took::All)
    }
}

/// A future that only the test polls. `poll` returns true when it is ready.
struct ByHand<F>(Pin<Box<F>>, Arc<Flag>);

#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl<F: Future<Output = ()>> ByHand<F> {
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
async fn is_silent(told: &Told) {
    let is_over = |hung: &Hung| *hung.bell.round() == Round::None;
    in_time(async {
        while !told.bells().iter().all(is_over) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

fn served(told: &Told, herald: &Arc<Herald>, what: Vec<Took>) -> (Ear, Arc<Takes>) {
    let takes = Arc::new(Takes { what: what.into(), ..Takes::default() });
    let mut ear = told.ear();
    ear.heeds(told, herald, Some(Arc::<Takes>::clone(&takes)));
    (ear, takes)
}

#[tokio::test]
async fn who_has_an_outlet_is_woken_for_what_that_does_not_take() {
    let (told, herald) = (Told::new(0), Arc::new(Herald::default()));
    run(&herald);
    let (mut ear, takes) = served(&told, &herald, vec![Took::Nothing, Took::Part, Took::All]);
    let mut moved = ByHand::new(ear.moved());
    told.tell(1, false);
    is_silent(&told).await;
    assert_eq!(takes.times(), 0, "the task does not wait yet");
    // An advance before the wait completes it.
    assert!(moved.poll());
    drop(moved);
    assert_eq!(ear.look(), 1);

    let mut moved = ByHand::new(ear.moved());
    assert!(!moved.poll());
    told.tell(2, false);
    takes.was_asked(1).await;
    assert!(!moved.is_woken(), "the sink delivered all");
    told.tell(3, false);
    takes.was_asked(3).await;
    assert!(moved.is_woken(), "the sink delivered a part and then requested the task");
    assert!(moved.poll());
    assert_eq!(takes.times(), 3);
}

#[tokio::test]
async fn a_few_take_what_there_is_from_who_tells_them() {
    let (told, herald) = (Told::new(0), Arc::new(Herald::default()));
    let mut all: Vec<_> = (0..FEW).map(|_| served(&told, &herald, Vec::new())).collect();
    let mut waits: Vec<_> = all.iter_mut().map(|(ear, _)| ByHand::new(ear.moved())).collect();
    assert!(waits.iter_mut().all(|wait| !wait.poll()));
    drop(waits);
    told.tell(1, true);
    assert!(
        all.iter().all(|(_, takes)| takes.times() == 1),
        "delivered inline: the notifier does not run yet"
    );
    told.tell(2, false);
    assert!(all.iter().all(|(_, takes)| takes.times() == 1), "without `inline` the notifier delivers");
    told.tell(3, true);
    assert!(all.iter().all(|(_, takes)| takes.times() == 1), "a queued pass belongs to the notifier");
    run(&herald);
    for (_, takes) in &all {
        takes.was_asked(2).await;
    }
    all.push(served(&told, &herald, Vec::new()));
    told.tell(4, true);
    assert!(all.iter().all(|(_, takes)| takes.times() <= 2), "too many waiters for inline delivery");
    for (_, takes) in &all[..FEW] {
        takes.was_asked(3).await;
    }
}

#[tokio::test]
async fn a_few_are_counted_on_all_threads_and_without_those_who_left() {
    let told = Told::new(0);
    let heralds = [Arc::new(Herald::default()), Arc::new(Herald::default())];
    let sits = |number: usize| served(&told, &heralds[number % 2], Vec::new());
    let mut all: Vec<_> = (0..FEW + 3).map(sits).collect();
    let waits = |all: &mut Vec<(Ear, Arc<Takes>)>| {
        let mut waits: Vec<_> = all.iter_mut().map(|(ear, _)| ByHand::new(ear.moved())).collect();
        assert!(waits.iter_mut().all(|wait| !wait.poll()));
    };
    let times = |all: &[(Ear, Arc<Takes>)]| all.iter().map(|(_, takes)| takes.times()).collect::<Vec<_>>();
    waits(&mut all);
    told.tell(1, true);
    assert_eq!(
        times(&all),
        [0; FEW + 3],
        "each notifier has few waiters, but together they exceed the limit"
    );
    heralds.iter().for_each(run);
    for (_, takes) in &all {
        takes.was_asked(1).await;
    }
    is_silent(&told).await;
    // The remaining subscribers keep their slots.
    drop(all.drain(..3));
    told.tell(2, true);
    assert_eq!(times(&all), [2; FEW], "delivered inline");
}

#[tokio::test]
async fn much_that_is_told_in_many_places_leaves_room_for_other_work() {
    let herald = Arc::new(Herald::default());
    let places: Vec<_> = (0..3 * AT_ONCE).map(|_| Told::new(0)).collect();
    let mut all: Vec<_> = places.iter().map(|told| served(told, &herald, Vec::new())).collect();
    for (ear, _) in &mut all {
        assert!(!ByHand::new(ear.moved()).poll());
    }
    for told in &places {
        told.tell(1, false);
    }
    run(&herald);
    let asked = || all.iter().filter(|(_, takes)| takes.times() == 1).count();
    tokio::task::yield_now().await;
    let before = asked();
    assert!((1..=AT_ONCE).contains(&before), "{before} sinks were called before the first yield");
    all[3 * AT_ONCE - 1].1.was_asked(1).await;
    assert_eq!(asked(), 3 * AT_ONCE);
}

#[tokio::test]
async fn a_part_that_is_left_to_a_few_is_the_heralds() {
    let (told, herald) = (Told::new(0), Arc::new(Herald::default()));
    let (mut ear, takes) = served(&told, &herald, vec![Took::Part, Took::Part]);
    let mut moved = ByHand::new(ear.moved());
    assert!(!moved.poll());
    told.tell(1, true);
    assert_eq!(takes.times(), 1);
    run(&herald);
    takes.was_asked(3).await;
    assert!(!moved.is_woken());
}

#[tokio::test]
async fn what_is_told_often_is_one_round_and_others_do_not_wait_for_it() {
    let herald = Arc::new(Herald::default());
    let (much, little) = (Told::new(0), Told::new(0));
    let mut many: Vec<_> = (0..10 * AT_ONCE).map(|_| much.ear()).collect();
    for ear in &mut many {
        ear.heeds(&much, &herald, None);
    }
    let mut one = little.ear();
    one.heeds(&little, &herald, None);
    let woken = Cell::new(0);
    let all = futures_util::future::join_all(many.iter_mut().map(async |ear| {
        ear.moved().await;
        woken.set(woken.get() + 1);
    }));
    let told = async {
        tokio::task::yield_now().await;
        for number in 1..1000 {
            much.tell(number, false);
        }
        little.tell(1, false);
        assert_eq!(sound(herald.sent.lock()).len(), 2);
        run(&herald);
    };
    let first = async {
        one.moved().await;
        woken.get()
    };
    let (_, (), before) = tokio::join!(all, told, first);
    assert!(before <= 2 * AT_ONCE, "{before} tasks were woken before the single reader");
    // The notifier has no queued pass left.
    while Arc::strong_count(&much.bells()[0].bell) > 1 + many.len() {
        tokio::task::yield_now().await;
    }
    assert_eq!(*much.bells()[0].bell.round(), Round::None);
}
