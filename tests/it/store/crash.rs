//! 2,000 ways in which a machine stops while the store writes. It opens each time, with a prefix of the commits, and
//! with all that were acknowledged.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use base::types::Ids;
use log::store::{Batch, EventStore as _, RecordStore as _, SqliteStore};
use tempfile::TempDir;

use super::disk::{Call, Disk, Kind};
use super::script::{Script, content, expected, forms, limits, open, run};
use super::states::{LEFT, Left, files};
use crate::support::{Random, figure};

/// The writer's own words in the journal: which step has begun, which was acknowledged.
pub(crate) const MARKS: &str = "marks";
const NAME: &str = "log.sqlite";
const WRITERS: u64 = 4;
const STEPS: usize = 30;
const STATES: usize = 2100;
/// A while without a commit, and the store moves its write-ahead log and cuts it; this is long enough for that.
const IDLE: Duration = Duration::from_secs(20);

/// On tmpfs if available: the test needs the recorded writes, not a durable disk.
pub(crate) fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() {
        TempDir::new_in(memory)
    } else {
        TempDir::new()
    };
    made.expect("a temporary folder")
}

/// This binary again, to run one of its ignored tests on `input` and on this disk.
#[expect(
    clippy::disallowed_methods,
    reason = "the test plays the machine that its own child stops with"
)]
pub(crate) fn again(test: &str, disk: &Disk, input: &str) -> Child {
    let mut child = std::process::Command::new(std::env::current_exe().expect("it runs"))
        .args(["--exact", test, "--ignored", "--nocapture"])
        .envs(disk.environment())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    child
        .stdin
        .take()
        .expect("it is piped")
        .write_all(input.as_bytes())
        .expect("it reads");
    child
}

/// Returns the output.
pub(crate) fn assert_passed(child: Child) -> String {
    let output = child.wait_with_output().expect("it is ours");
    let stdout = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && stdout.contains("1 passed"),
        "{stdout}{errors}"
    );
    stdout.into_owned()
}

/// The words of the first line of stdin; none when a person ran the test by hand.
pub(crate) fn input() -> Vec<String> {
    let mut line = String::new();
    std::io::stdin()
        .read_line(&mut line)
        .expect("stdin can be read");
    line.split_whitespace().map(str::to_owned).collect()
}

#[test]
#[ignore = "started by the_store_opens_with_a_prefix_of_the_commits_and_all_that_were_acknowledged"]
fn writer() {
    let words = input();
    let [folder, seed] = &words[..] else { return };
    let folder = Path::new(folder);
    let path = folder.join(NAME);
    let seed: u64 = seed.parse().expect("a number");
    let mut marks = File::create(folder.join(MARKS)).expect("the folder is ours");
    let mut mark = |text: String| {
        marks
            .write_all(text.as_bytes())
            .expect("the folder is ours");
    };
    let mut script = Script::new(seed);
    let mut random = Random::new(!seed);
    let mut store = open(&path);
    mark(format!("epoch {}", store.epoch()));
    for step in 1..=STEPS {
        mark(format!("begun {step}"));
        script.next().take(&store).expect("the disk works");
        mark(format!("acknowledged {step}"));
        if step == STEPS / 2 {
            when(|| is_moved(folder));
        }
        // Two of them are in every life.
        match random.below(14) {
            _ if step == STEPS / 3 => checkpoint(&path, "RESTART"),
            _ if step == STEPS * 2 / 3 => checkpoint(&path, "TRUNCATE"),
            0 => {
                drop(store);
                store = open(&path);
            }
            1 | 2 => checkpoint(&path, "PASSIVE"),
            3 => checkpoint(&path, "RESTART"),
            4 => checkpoint(&path, "TRUNCATE"),
            _ => {}
        }
    }
}

/// Waits for the store's background work.
pub(crate) fn when(holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < IDLE, "the store does nothing");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether all of the write-ahead log is in the file: `mxFrame` and `nBackfill` of its index are the same (section 2.1 of
/// <https://sqlite.org/walformat.html>).
fn is_moved(folder: &Path) -> bool {
    let index = fs::read(folder.join(format!("{NAME}-shm"))).expect("the store is open");
    index[16..20] == index[96..100]
}

/// Runs the checkpoint that the store's own thread runs after 32 MiB or when idle.
fn checkpoint(path: &Path, how: &str) {
    let connection = rusqlite::Connection::open(path).expect("it opens");
    connection
        .pragma_update(None, "synchronous", "FULL")
        .expect("it is taken");
    // The store's own thread may be at it.
    let busy = || {
        connection.query_row(&format!("PRAGMA wal_checkpoint({how})"), [], |row| {
            row.get::<_, bool>(0)
        })
    };
    while busy().expect("the disk works") {}
}

/// All that one writer did.
struct Life {
    calls: Vec<Call>,
    folder: String,
    expected: Vec<u64>,
}

/// The acknowledged state when the machine stopped.
#[derive(Debug, Default)]
struct Known {
    epoch: Option<String>,
    begun: usize,
    acknowledged: usize,
}

fn lives(seed: u64) -> Vec<Life> {
    let mut random = Random::new(seed);
    let start = |_| {
        let writer = random.below(u64::MAX);
        let folder = folder();
        let path = folder.path().canonicalize().expect("it is there");
        let disk = Disk::of(&path);
        let child = again(
            "store::crash::writer",
            &disk,
            &format!("{} {writer}\n", path.display()),
        );
        (writer, folder, path, disk, child)
    };
    let writers: Vec<_> = (0..WRITERS).map(start).collect();
    let end = |(writer, _folder, path, disk, child): (u64, TempDir, PathBuf, Disk, Child)| {
        assert_passed(child);
        let name = path
            .file_name()
            .expect("it has a name")
            .to_str()
            .expect("UTF-8")
            .to_owned();
        Life {
            calls: disk.journal(),
            folder: name,
            expected: expected(writer, STEPS),
        }
    };
    writers.into_iter().map(end).collect()
}

fn known(calls: &[Call]) -> Known {
    let mut known = Known::default();
    for call in calls.iter().filter(|call| call.name == MARKS) {
        let Kind::Write { bytes, .. } = &call.kind else {
            continue;
        };
        match std::str::from_utf8(bytes).expect("text").split_once(' ') {
            Some(("epoch", epoch)) => known.epoch = Some(epoch.to_owned()),
            Some(("begun", step)) => known.begun = step.parse().expect("a number"),
            Some(("acknowledged", step)) => known.acknowledged = step.parse().expect("a number"),
            other => panic!("no mark: {other:?}"),
        }
    }
    known
}

/// The content of one crash state.
struct Found {
    /// Commits beyond those that were acknowledged.
    beyond: usize,
    forms: [usize; 2],
}

/// Opens one state, reads it whole and commits to it.
fn check(life: &Life, cut: usize, left: Left, random: &mut Random, folder: &Path) -> Found {
    let known = known(&life.calls[..cut]);
    for (name, bytes) in files(&life.calls[..cut], &life.folder, left, random) {
        fs::write(folder.join(name), bytes).expect("the folder is ours");
    }
    if random.below(4) == 0 {
        fs::write(folder.join(format!("{NAME}-shm")), [0xa5; 5000]).expect("the folder is ours");
    }
    let path = folder.join(NAME);
    let store = SqliteStore::open(&path, Ids::system(), &limits());
    let store = store.unwrap_or_else(|error| panic!("it does not open: {error:?}"));
    let found = content(&store);
    let possible = known.acknowledged..=known.begun;
    let holds = possible
        .clone()
        .find(|steps| life.expected[*steps] == found);
    let holds = holds.unwrap_or_else(|| {
        let other = life.expected.iter().position(|content| *content == found);
        panic!("it holds {other:?} commits, which has to be one of {possible:?}")
    });
    if let Some(epoch) = &known.epoch {
        assert_eq!(store.epoch().as_str(), epoch, "history is the same");
    }
    let forms = forms(&store);
    let next = Batch {
        runs: vec![run(200, 1, 3, 10)],
        ..Batch::default()
    };
    store.commit(&next).expect("it goes on");
    if random.below(4) == 0 {
        let grown = content(&store);
        drop(store);
        assert_eq!(content(&open(&path)), grown, "later commits are there");
    }
    Found {
        beyond: holds - known.acknowledged,
        forms,
    }
}

/// Checks that the writers did enough work before the crash.
fn assert_worth_it(life: &Life) {
    let count = |name: &str, fits: &dyn Fn(&Kind) -> bool| {
        life.calls
            .iter()
            .filter(|call| call.name == name && fits(&call.kind))
            .count()
    };
    let wal = format!("{NAME}-wal");
    let mut begun = false;
    let mut anew = 0;
    for call in life.calls.iter().filter(|call| call.name == wal) {
        match &call.kind {
            Kind::Create | Kind::Truncate { size: 0 } => begun = false,
            // Its header.
            Kind::Write { at: 0, bytes } if bytes.starts_with(&[0x37, 0x7f, 0x06]) => {
                anew += usize::from(begun);
                begun = true;
            }
            _ => {}
        }
    }
    assert!(anew > 0, "the log began anew over moved data");
    assert!(
        count(&wal, &|kind| matches!(kind, Kind::Truncate { size: 0 })) > 0,
        "the log was cut"
    );
    assert!(
        count(NAME, &|kind| matches!(kind, Kind::Write { .. })) > 20,
        "checkpoints wrote to the file"
    );
    assert!(
        count(NAME, &|kind| matches!(kind, Kind::Synced)) > 1,
        "and synced it"
    );
}

#[test]
fn the_store_opens_with_a_prefix_of_the_commits_and_all_that_were_acknowledged() {
    let (seed, _) = Random::seeded();
    figure(&format!("SEED={seed}"));
    let began = Instant::now();
    let lives = lives(seed);
    lives.iter().for_each(assert_worth_it);
    let written = began.elapsed();
    let root = folder();
    let turn = AtomicUsize::new(0);
    let beyond = AtomicUsize::new(0);
    let runs = [AtomicUsize::new(0), AtomicUsize::new(0)];
    let work = |worker: usize| {
        let folder = root.path().join(worker.to_string());
        let mut kinds: BTreeMap<Left, usize> = BTreeMap::new();
        loop {
            let state = turn.fetch_add(1, Ordering::Relaxed);
            if state >= STATES {
                return kinds;
            }
            let mut random = Random::new(seed ^ (state as u64) << 20);
            let life = &lives[state % lives.len()];
            let cut = 1 + state * life.calls.len() / STATES;
            let left = LEFT[usize::try_from(random.below(5)).expect("small")];
            fs::create_dir(&folder).expect("the folder is ours");
            let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                check(life, cut, left, &mut random, &folder)
            }));
            let found = checked.unwrap_or_else(|_| {
                // The next worker skips the states that this worker has checked.
                turn.store(STATES, Ordering::Relaxed);
                panic!(
                    "SEED={seed}, state {state}, {left:?} after call {cut}: {:?}",
                    life.calls[cut - 1].name
                )
            });
            beyond.fetch_add(usize::from(found.beyond > 0), Ordering::Relaxed);
            for (runs, count) in runs.iter().zip(found.forms) {
                runs.fetch_add(count, Ordering::Relaxed);
            }
            *kinds.entry(left).or_default() += 1;
            fs::remove_dir_all(&folder).expect("the folder is ours");
        }
    };
    let workers = std::thread::available_parallelism()
        .map_or(2, std::num::NonZero::get)
        .min(8);
    let kinds: Vec<BTreeMap<Left, usize>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers)
            .map(|worker| scope.spawn(move || work(worker)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("every state holds"))
            .collect()
    });
    let checked: usize = kinds.iter().flat_map(BTreeMap::values).sum();
    assert_eq!(checked, STATES);
    let [packed, plain] = runs.map(AtomicUsize::into_inner);
    assert!(
        packed > STATES && plain > STATES,
        "{packed} runs were packed, and {plain} were not"
    );
    let calls: usize = lives.iter().map(|life| life.calls.len()).sum();
    figure(&format!(
        "{checked} crash states of {calls} calls ({written:?} to write, {:?} in all): {} of them contained a commit that was not acknowledged",
        began.elapsed(),
        beyond.into_inner(),
    ));
}

#[test]
fn torn_first_page_is_restored_from_the_log() {
    let copy = folder();
    let folder = folder();
    let store = open(&folder.path().join(NAME));
    let mut script = Script::new(1);
    for _ in 0..STEPS {
        script.next().take(&store).expect("the disk works");
    }
    for name in [NAME.to_owned(), format!("{NAME}-wal")] {
        fs::copy(folder.path().join(&name), copy.path().join(name)).expect("the folders are ours");
    }
    let path = copy.path().join(NAME);
    let mut bytes = fs::read(&path).expect("it is there");
    bytes[..8192].fill(0x5a);
    fs::write(&path, bytes).expect("the folder is ours");
    assert_eq!(content(&open(&path)), content(&store));
}
