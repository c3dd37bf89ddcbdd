//! Stored statistics of each log. With them, a start reads one row for each session and a few runs, instead
//! of every run.
//!
//! The statistics are exact at the position `summed_pos`. After a number of runs, a commit writes the
//! statistics of all changed logs. A transaction that prunes runs always writes them.

use std::collections::HashSet;

use rusqlite::{Connection, Row, params};

use super::super::LogUsage;
use super::super::usage::Usages;
use super::row::{from_sql, to_sql};
use super::schema;
use base::types::{SessionId, Timestamp, UserId};

/// The approximate maximum of runs that a start reads besides the statistics. Writing the statistics of that
/// many logs takes a few milliseconds.
const RUNS_PER_UPDATE: u64 = 1024;

/// The statistics that one transaction writes.
#[derive(Debug)]
pub(super) struct LogStats {
    pub(super) logs: Vec<LogUsage>,
    /// The position at which they are exact.
    pub(super) pos: u64,
    /// Replace the whole table.
    full_rewrite: bool,
}

/// Logs that changed since their statistics were written.
#[derive(Debug, Default)]
pub(super) struct DirtyStats {
    sessions: HashSet<SessionId>,
    runs: u64,
    /// The stored statistics are invalid. The next write replaces all of them.
    pub(super) full_rewrite: bool,
}

impl DirtyStats {
    pub(super) fn mark_dirty(&mut self, session: SessionId) {
        self.sessions.insert(session);
        self.runs += 1;
    }

    pub(super) fn is_due(&self) -> bool {
        self.runs >= RUNS_PER_UPDATE
    }

    /// The statistics of all changed logs, from memory.
    pub(super) fn snapshot(&self, usages: &Usages, pos: u64) -> LogStats {
        let sessions = self.sessions.iter();
        LogStats {
            logs: sessions
                .filter_map(|session| usages.get(*session))
                .collect(),
            pos,
            full_rewrite: self.full_rewrite,
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

pub(super) fn write(transaction: &Connection, stats: &LogStats) -> Result<(), rusqlite::Error> {
    if stats.full_rewrite {
        transaction.execute("DELETE FROM log", [])?;
    }
    let mut insert = transaction
        .prepare("INSERT OR REPLACE INTO log VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)")?;
    for log in &stats.logs {
        insert.execute(params![
            log.session.as_bytes(),
            log.owner.as_str(),
            to_sql(log.first_seq),
            to_sql(log.last_seq),
            to_sql(log.first_pos),
            to_sql(log.last_pos),
            to_sql(log.bytes),
            to_sql(log.runs),
            log.last_time.as_millis(),
            checksum(log),
        ])?;
    }
    schema::set_position(transaction, "summed_pos", stats.pos)?;
    let crc = position_checksum(stats.pos);
    schema::set_position(transaction, "summed_crc", crc.into())
}

pub(super) fn erase(transaction: &Connection, session: SessionId) -> Result<(), rusqlite::Error> {
    let delete = "DELETE FROM log WHERE session = ?1";
    transaction.execute(delete, [session.as_bytes()]).map(drop)
}

/// Loads the stored statistics and their position. Retention uses them to delete data, so one invalid row
/// invalidates all. Returns `None` in that case, and the caller must read every run.
pub(super) fn load(connection: &Connection) -> Result<Option<(Usages, u64)>, rusqlite::Error> {
    let position = |key| schema::position(connection, key);
    let (Ok(pos), Ok(crc)) = (position("summed_pos"), position("summed_crc")) else {
        return Ok(None);
    };
    if pos == 0 || crc != u64::from(position_checksum(pos)) {
        return Ok(None);
    }
    let mut usages = Usages::default();
    let count: i64 = connection.query_row("SELECT count(*) FROM log", [], |row| row.get(0))?;
    usages.reserve(usize::try_from(count).unwrap_or_default());
    let mut select = connection.prepare(
        "SELECT session, tenant, first_seq, last_seq, first_pos, last_pos, bytes, runs, last_time, crc FROM log",
    )?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let (Ok(log), Ok(crc)) = (usage(row), row.get::<_, u32>(9)) else {
            return Ok(None);
        };
        if checksum(&log) != crc {
            return Ok(None);
        }
        usages.restore(&log);
    }
    Ok(Some((usages, pos)))
}

fn usage(row: &Row<'_>) -> Result<LogUsage, rusqlite::Error> {
    let number = |column| row.get(column).map(from_sql);
    Ok(LogUsage {
        session: SessionId::from_uuid(uuid::Uuid::from_bytes(row.get(0)?)),
        owner: UserId::from_text(row.get_ref(1)?.as_str()?),
        first_seq: number(2)?,
        last_seq: number(3)?,
        first_pos: number(4)?,
        last_pos: number(5)?,
        bytes: number(6)?,
        runs: number(7)?,
        last_time: Timestamp::from_millis(row.get(8)?),
    })
}

fn checksum(log: &LogUsage) -> u32 {
    let numbers = [
        log.first_seq,
        log.last_seq,
        log.first_pos,
        log.last_pos,
        log.bytes,
        log.runs,
    ];
    let mut crc = crc32c::crc32c(log.session.as_bytes());
    for number in numbers {
        crc = crc32c::crc32c_append(crc, &number.to_be_bytes());
    }
    crc = crc32c::crc32c_append(crc, &log.last_time.as_millis().to_be_bytes());
    crc32c::crc32c_append(crc, log.owner.as_str().as_bytes())
}

fn position_checksum(pos: u64) -> u32 {
    crc32c::crc32c(&pos.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::super::super::contract::{append, run, session};
    use super::super::super::{
        Batch, Cut, EventStore as _, Maintenance as _, RecordStore as _, SqliteStore,
    };
    use super::*;
    use crate::limits::Limits;
    use base::types::Ids;

    fn open(path: &Path) -> SqliteStore {
        SqliteStore::open(path, Ids::system(), &Limits::default())
            .expect("could not open the store")
    }

    fn logs(store: &SqliteStore) -> Vec<LogUsage> {
        let mut logs = store.usages(usize::MAX, &|_| true);
        logs.sort_by_key(|log| log.session.as_bytes().to_owned());
        logs
    }

    /// The number of runs that a start would read.
    fn runs_after_stats(path: &Path) -> i64 {
        let file = schema::open_reader(path).unwrap();
        let select = "SELECT count(*) FROM run WHERE pos > (SELECT value FROM meta WHERE key = 'summed_pos')";
        file.query_row(select, [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn open_reads_few_runs_of_a_long_log() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let store = open(&path);
        let each = RUNS_PER_UPDATE / 4;
        for round in 0..12 {
            append(
                &store,
                (0..each)
                    .map(|n| run(1, round * each + n + 1..=round * each + n + 1))
                    .collect(),
            );
            append(&store, vec![run(2, round + 1..=round + 1)]);
        }
        let before = logs(&store);
        let total = store.total_bytes();
        let tail = store.tail();
        drop(store);
        assert!(
            runs_after_stats(&path) < i64::try_from(RUNS_PER_UPDATE + each).unwrap(),
            "{}",
            runs_after_stats(&path)
        );
        let store = open(&path);
        assert_eq!(
            (logs(&store), store.total_bytes(), store.tail()),
            (before, total, tail)
        );
    }

    #[test]
    fn file_without_stats_is_read_completely() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let store = open(&path);
        for round in 0..20 {
            append(
                &store,
                vec![
                    run(1, round * 3 + 1..=round * 3 + 3),
                    run(2, round + 1..=round + 1),
                ],
            );
        }
        store
            .prune(
                &[Cut {
                    session: session(1),
                    through: 30,
                }],
                100,
            )
            .unwrap();
        let before = (logs(&store), store.total_bytes(), store.tail());
        drop(store);
        let file = Connection::open(&path).unwrap();
        file.execute_batch("DELETE FROM log; UPDATE meta SET value = 0 WHERE key LIKE 'summed%'")
            .unwrap();
        drop(file);
        let store = open(&path);
        assert_eq!((logs(&store), store.total_bytes(), store.tail()), before);
        append(
            &store,
            (1..=RUNS_PER_UPDATE).map(|n| run(3, n..=n)).collect(),
        );
        append(&store, vec![run(2, 21..=21)]);
        drop(store);
        assert_eq!(runs_after_stats(&path), 1);
    }

    /// Retention must not act on wrong numbers: it would delete logs that look large or old.
    #[test]
    fn any_flipped_bit_in_stats_is_detected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let store = open(&path);
        append(
            &store,
            (1..=RUNS_PER_UPDATE).map(|n| run(1, n..=n)).collect(),
        );
        append(&store, vec![run(2, 1..=3)]);
        append(
            &store,
            vec![run(1, RUNS_PER_UPDATE + 1..=RUNS_PER_UPDATE + 2)],
        );
        let before = (logs(&store), store.total_bytes(), store.tail());
        drop(store);
        let numbers = [
            "first_seq",
            "last_seq",
            "first_pos",
            "last_pos",
            "bytes",
            "runs",
            "last_time",
            "crc",
        ];
        let flips = numbers.iter().flat_map(|column| {
            [0, 7, 20, 40].map(|bit| {
                format!(
                    "UPDATE log SET {column} = {column} | (1 << {bit}) - ({column} & (1 << {bit}))"
                )
            })
        });
        let others = [
            "UPDATE log SET tenant = 'x'",
            "UPDATE log SET session = CAST(x'00' || substr(session, 2) AS BLOB)",
            "UPDATE log SET session = x'00' WHERE last_seq = 3",
            "UPDATE meta SET value = value - 1 WHERE key = 'summed_pos'",
            "UPDATE meta SET value = value + 1 WHERE key = 'summed_pos'",
            "UPDATE meta SET value = 0 WHERE key = 'summed_pos'",
            "UPDATE meta SET value = 'x' WHERE key = 'summed_pos'",
            "UPDATE meta SET value = value + 1 WHERE key = 'summed_crc'",
        ];
        for flip in flips.chain(others.map(str::to_owned)) {
            let spoilt = folder.path().join("spoilt");
            std::fs::copy(&path, &spoilt).unwrap();
            Connection::open(&spoilt)
                .unwrap()
                .execute_batch(&flip)
                .unwrap();
            for _ in 0..2 {
                let store = open(&spoilt);
                assert_eq!(
                    (logs(&store), store.total_bytes(), store.tail()),
                    before,
                    "{flip}"
                );
            }
            // The next write replaces the whole table, so no damaged row remains.
            let store = open(&spoilt);
            store
                .prune(
                    &[Cut {
                        session: session(1),
                        through: 1,
                    }],
                    1,
                )
                .unwrap();
            let after = (logs(&store), store.total_bytes(), store.tail());
            drop(store);
            assert_eq!(runs_after_stats(&spoilt), 0, "{flip}");
            let store = open(&spoilt);
            assert_eq!(
                (logs(&store), store.total_bytes(), store.tail()),
                after,
                "{flip}"
            );
        }
    }

    #[derive(Debug, Clone, Copy)]
    enum Step {
        Append(u8, u64),
        Prune(u8, u64),
        Erase(u8),
        /// Appends enough runs that a commit writes the statistics.
        StatsUpdate(u8),
        Open,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            // Short runs are stored without compression, long runs are compressed.
            4 => (1..5u8, prop_oneof![1..4u64, 10..30u64]).prop_map(|(of, count)| Step::Append(of, count)),
            2 => (1..5u8, 1..60u64).prop_map(|(of, through)| Step::Prune(of, through)),
            1 => (1..5u8).prop_map(Step::Erase),
            1 => (1..5u8).prop_map(Step::StatsUpdate),
            1 => Just(Step::Open),
        ];
        prop::collection::vec(step, 1..24)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]

        #[test]
        fn reopened_stats_equal_stats_in_memory(steps in steps()) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("log");
            let mut store = open(&path);
            let mut last = [0; 5];
            for step in steps {
                match step {
                    Step::Append(of, count) => {
                        let seq = &mut last[usize::from(of)];
                        append(&store, vec![run(of, *seq + 1..=*seq + count)]);
                        *seq += count;
                    }
                    Step::Prune(of, through) => {
                        store.prune(&[Cut { session: session(of), through }], 3).unwrap();
                    }
                    Step::Erase(of) => {
                        let batch = Batch { erase: vec![session(of)], ..Batch::default() };
                        store.commit(&batch).unwrap();
                    }
                    Step::StatsUpdate(of) => {
                        let seq = &mut last[usize::from(of)];
                        append(&store, (1..=RUNS_PER_UPDATE).map(|n| run(of, *seq + n..=*seq + n)).collect());
                        *seq += RUNS_PER_UPDATE;
                    }
                    Step::Open => {
                        let before = (logs(&store), store.total_bytes(), store.tail());
                        drop(store);
                        store = open(&path);
                        prop_assert_eq!((logs(&store), store.total_bytes(), store.tail()), before);
                    }
                }
            }
            let before = (logs(&store), store.total_bytes(), store.tail());
            drop(store);
            let store = open(&path);
            prop_assert_eq!((logs(&store), store.total_bytes(), store.tail()), before);
        }
    }
}
