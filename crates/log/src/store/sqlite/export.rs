//! A file with one session, for its move to another log.
//!
//! It is a log with the runs and the records of the session, so the checks, the migration and the rejection of later formats are
//! those of a log. One more table contains the files of the session's folder.

use std::path::Path;

use bytes::Bytes;
use rusqlite::types::ToSqlOutput;
use rusqlite::{Connection, Params, Statement, params};

use super::super::{Record, Table};
use super::check::Check;
use super::compress::Compressor;
use super::copy::{epoch_of, remove_files};
use super::migrate;
use super::row::{COLUMNS, StoredRow, checksum, decode_row, from_sql, select_run, session_of};
use super::schema::{self, OpenError, SCHEMA, VERSION, open_copy, open_source};
use base::types::{Epoch, Ids, SessionId, UserId};

/// A large file has several rows.
const FILES: &str = "
CREATE TABLE file (
    number INTEGER PRIMARY KEY,
    path TEXT NOT NULL,
    executable INTEGER NOT NULL,
    content BLOB NOT NULL
) STRICT;
";
/// The maximum size of the records. An import keeps them in memory.
pub const MAX_EXPORTED_RECORD_BYTES: u64 = 64 << 20;
/// The maximum size of a part of a file.
pub const FILE_PART_BYTES: usize = 1 << 20;
/// Greater than the rest of every key after the session id.
const KEY_END: [u8; 5] = [0xff; 5];

#[derive(Debug)]
pub struct ExportFile {
    connection: Connection,
    session: SessionId,
}

impl ExportFile {
    /// Copies the runs of a session and its records in `tables` into a new file, from one snapshot of the log. The keys of the
    /// records begin with the id of the session. Add the other parts, and call [`finish`](Self::finish).
    pub fn create(
        log: &Path,
        file: &Path,
        session: SessionId,
        tables: &[Table],
        ids: &Ids,
    ) -> Result<Self, OpenError> {
        let found = schema::identify(log)?;
        if found < VERSION {
            return Err(OpenError::NotMigrated { found });
        }
        remove_files(file);
        schema::create(file, ids)?;
        let copied = copy_session(log, file, session, tables);
        if copied.is_err() {
            remove_files(file);
        }
        Ok(Self {
            connection: copied?,
            session,
        })
    }

    pub fn add_record(&self, table: Table, key: &[u8], value: &[u8]) -> Result<(), OpenError> {
        let insert = "INSERT INTO record (tbl, key, value) VALUES (?1, ?2, ?3)";
        let mut insert = self.connection.prepare_cached(insert)?;
        insert.execute(params![table as u8, key, value])?;
        Ok(())
    }

    /// Adds a file, or the next part of the last one.
    pub fn add_file_part(
        &self,
        path: &str,
        is_executable: bool,
        content: &[u8],
    ) -> Result<(), OpenError> {
        let insert = "INSERT INTO file (path, executable, content) VALUES (?1, ?2, ?3)";
        let mut insert = self.connection.prepare_cached(insert)?;
        insert.execute(params![path, is_executable, content])?;
        Ok(())
    }

    pub fn finish(self) -> Result<(), OpenError> {
        self.connection.execute_batch("COMMIT")?;
        self.connection.close().map_err(|(_, error)| error)?;
        Ok(())
    }

    /// Opens the file of another gateway, of this format or an earlier one, after a complete check.
    pub fn open(file: &Path, ids: &Ids) -> Result<Self, OpenError> {
        let format = schema::identify(file)?;
        check_schema(file)?;
        if format < VERSION {
            migrate::apply(file, format, ids)?;
        }
        let checked = Check::of(file, &epoch_of(file)?)?.run(u64::MAX, || {})?;
        if checked.damaged > 0 || checked.overflow_damaged {
            return Err(OpenError::Damaged("events are damaged".into()));
        }
        let connection = open_copy(file)?;
        let records = "SELECT coalesce(sum(length(key) + length(value)), 0) FROM record";
        check_size(&connection, records, "records", MAX_EXPORTED_RECORD_BYTES)?;
        let part = "SELECT coalesce(max(length(content)), 0) FROM file";
        let max_part = FILE_PART_BYTES as u64;
        check_size(&connection, part, "one part of a file", max_part)?;
        let session = only_session(&connection)?;
        Ok(Self {
            connection,
            session,
        })
    }

    pub fn session(&self) -> SessionId {
        self.session
    }

    /// The stored size of the events.
    pub fn event_bytes(&self) -> Result<u64, OpenError> {
        let select = "SELECT coalesce(sum(length(frames)), 0) FROM run";
        let bytes = self.connection.query_row(select, [], |row| row.get(0))?;
        Ok(from_sql(bytes))
    }

    pub fn file_count(&self) -> Result<u64, OpenError> {
        let select = "SELECT count(DISTINCT path) FROM file";
        let count = self.connection.query_row(select, [], |row| row.get(0))?;
        Ok(from_sql(count))
    }

    /// The records of a table, ordered by key.
    pub fn records(&self, table: Table) -> Result<Vec<Record>, OpenError> {
        let select = "SELECT key, value FROM record WHERE tbl = ?1 ORDER BY key";
        let mut select = self.connection.prepare(select)?;
        let record = |row: &rusqlite::Row<'_>| {
            let value: Vec<u8> = row.get(1)?;
            Ok((row.get(0)?, Bytes::from(value)))
        };
        let records = select.query_map([table as u8], record)?;
        Ok(records.collect::<Result<_, _>>()?)
    }

    /// Rewrites the runs as those of another session, in the log with this epoch. Returns the last sequence number. `None` if a
    /// run is damaged, or missing between two others; the file is then of no more use.
    pub fn move_to(
        &mut self,
        session: SessionId,
        owner: &UserId,
        epoch: &Epoch,
    ) -> Result<Option<u64>, OpenError> {
        let session_epoch = epoch.of_session(session);
        let file = &self.connection;
        // After a failure the file is deleted, so it needs no copy of the previous pages.
        file.pragma_update_and_check(None, "journal_mode", "OFF", |_| Ok(()))?;
        file.execute_batch("BEGIN")?;
        let mut select = file.prepare("SELECT pos FROM run ORDER BY first_seq")?;
        let positions = select.query_map([], |row| row.get(0))?;
        let positions: Vec<i64> = positions.collect::<Result<_, _>>()?;
        let mut select = select_run(file)?;
        let mut update = file.prepare(
            "UPDATE run SET session = ?2, tenant = ?3, epoch = ?4, crc = ?5, frames = ?6
             WHERE pos = ?1",
        )?;
        let mut packer = Compressor::default();
        let mut last_seq = None;
        for pos in positions {
            let run = match decode_row(select.query([pos])?.next(), epoch, &|_, _| true) {
                Ok(StoredRow::Run(run)) => run.moved_to(session, owner, &session_epoch),
                Ok(_) | Err(_) => None,
            };
            let follows = |first| last_seq.is_none_or(|last: u64| first == last + 1);
            let Some(run) = run.filter(|run| follows(run.first_seq)) else {
                return Ok(None);
            };
            last_seq = Some(run.last_seq);
            let stored = packer.compress(&run.frames);
            update.execute(params![
                pos,
                session.as_bytes(),
                owner.as_str(),
                epoch.as_str(),
                checksum(session, run.first_seq, run.last_seq, stored),
                stored,
            ])?;
        }
        file.execute_batch("COMMIT")?;
        self.session = session;
        Ok(last_seq)
    }

    /// Selects the columns of the runs of the session, oldest first.
    pub(super) fn select_runs(&self) -> Result<Statement<'_>, rusqlite::Error> {
        self.connection.prepare(&format!(
            "SELECT {COLUMNS} FROM run INDEXED BY run_session WHERE session = ?1 ORDER BY first_seq"
        ))
    }

    /// Calls `each` with the path, whether the file is executable, and the content of each part of a file. Stops at an error.
    pub fn for_each_file_part<E: From<OpenError>>(
        &self,
        mut each: impl FnMut(&str, bool, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let select = "SELECT path, executable, content FROM file ORDER BY number";
        let mut select = self.connection.prepare(select).map_err(OpenError::from)?;
        let mut rows = select.query([]).map_err(OpenError::from)?;
        while let Some(row) = rows.next().map_err(OpenError::from)? {
            let path: String = row.get(0).map_err(OpenError::from)?;
            let is_executable = row.get(1).map_err(OpenError::from)?;
            let content: Vec<u8> = row.get(2).map_err(OpenError::from)?;
            each(&path, is_executable, &content)?;
        }
        Ok(())
    }
}

fn copy_session(
    log: &Path,
    file: &Path,
    session: SessionId,
    tables: &[Table],
) -> Result<Connection, OpenError> {
    let source = open_source(log)?;
    source.execute_batch("BEGIN")?;
    let target = open_copy(file)?;
    // The result must be a single file.
    target.pragma_update_and_check(None, "journal_mode", "DELETE", |_| Ok(()))?;
    target.execute_batch("BEGIN")?;
    target.execute_batch(FILES)?;
    let select =
        "SELECT pos, session, first_seq, last_seq, tenant, epoch, time, crc, frames FROM run
         WHERE session = ?1 ORDER BY first_seq";
    let insert = "INSERT INTO run VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
    copy_rows(&source, select, [session.as_bytes()], &target, insert)?;
    let end = [session.as_bytes().as_slice(), &KEY_END].concat();
    for table in tables {
        let select = "SELECT tbl, key, value FROM record WHERE tbl = ?1 AND key >= ?2 AND key < ?3";
        let keys = params![*table as u8, session.as_bytes(), end];
        let insert = "INSERT INTO record VALUES (?1, ?2, ?3)";
        copy_rows(&source, select, keys, &target, insert)?;
    }
    Ok(target)
}

fn copy_rows(
    source: &Connection,
    select: &str,
    params: impl Params,
    target: &Connection,
    insert: &str,
) -> Result<(), rusqlite::Error> {
    let mut select = source.prepare(select)?;
    let columns = select.column_count();
    let mut insert = target.prepare(insert)?;
    let mut rows = select.query(params)?;
    while let Some(row) = rows.next()? {
        for column in 0..columns {
            let value = ToSqlOutput::Borrowed(row.get_ref(column)?);
            insert.raw_bind_parameter(column + 1, value)?;
        }
        insert.raw_execute()?;
    }
    Ok(())
}

/// Compares the schema with that of an export. No other statement may read the file before, because SQLite evaluates
/// expressions of the schema.
fn check_schema(file: &Path) -> Result<(), OpenError> {
    let own = Connection::open_in_memory()?;
    own.execute_batch(SCHEMA)?;
    own.execute_batch(FILES)?;
    let expected = schema_of(&own, usize::MAX)?;
    let found = schema_of(&open_source(file)?, expected.len() + 1)?;
    if found == expected {
        Ok(())
    } else {
        Err(OpenError::NotALog)
    }
}

/// The type, the name, the table and the statement of each object.
type SchemaRow = (String, String, String, Option<String>);

fn schema_of(file: &Connection, limit: usize) -> Result<Vec<SchemaRow>, rusqlite::Error> {
    let mut select =
        file.prepare("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name")?;
    let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
    let rows = select.query_map([], row)?;
    rows.take(limit).collect()
}

fn check_size(
    file: &Connection,
    select: &str,
    what: &'static str,
    max: u64,
) -> Result<(), OpenError> {
    let bytes = from_sql(file.query_row(select, [], |row| row.get(0))?);
    if bytes > max {
        return Err(OpenError::TooLarge { what, bytes, max });
    }
    Ok(())
}

fn only_session(file: &Connection) -> Result<SessionId, OpenError> {
    let mut select = file.prepare("SELECT DISTINCT session FROM run LIMIT 2")?;
    let sessions = select.query_map([], |row| session_of(row, 0))?;
    let sessions: Vec<SessionId> = sessions.collect::<Result<_, _>>()?;
    match sessions[..] {
        [session] => Ok(session),
        _ => Err(OpenError::NotALog),
    }
}

#[cfg(test)]
mod tests {
    use std::ops::RangeInclusive;

    use super::super::super::contract::{seqs, session};
    use super::super::super::{
        Batch, EventStore as _, RecordState, RecordStore as _, Run, SqliteStore,
    };
    use super::*;
    use crate::limits::Limits;
    use base::types::Timestamp;
    use events::event::{Event, Framer, Members};

    fn open(path: &Path) -> SqliteStore {
        SqliteStore::open(path, Ids::system(), &Limits::default())
            .expect("could not open the store")
    }

    fn run(store: &SqliteStore, number: u8, seqs: RangeInclusive<u64>) -> Run {
        let id = session(number);
        let mut framer = Framer::new(&store.epoch().of_session(id), id);
        let mut bytes = Vec::new();
        let event = Event {
            kind: "test",
            prompt: None,
            members: Members::whole(b"\"a\":1"),
        };
        for at in seqs.clone() {
            framer.frame(&mut bytes, at, &event, Timestamp::from_millis(1));
        }
        Run {
            owner: UserId::owner(),
            session: id,
            first_seq: *seqs.start(),
            last_seq: *seqs.end(),
            last_pos: 0,
            frames: bytes.into(),
        }
    }

    fn commit(store: &SqliteStore, runs: Vec<Run>, records: Vec<RecordState>) {
        let batch = Batch {
            runs,
            records,
            ..Batch::default()
        };
        store.commit(&batch).expect("could not commit");
    }

    fn key(number: u8, rest: &[u8]) -> Vec<u8> {
        [session(number).as_bytes(), rest].concat()
    }

    #[test]
    fn only_the_session_is_exported_and_appended_with_the_ids_of_the_other_log() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let source = open(&path);
        let records = [0, 1, 2].map(|of| {
            let key = key(of, &u32::MAX.to_be_bytes());
            RecordState::present(Table::Prompt, key, "prompt")
        });
        let other = RecordState::present(Table::Request, key(1, &[]), "request");
        let runs = vec![
            run(&source, 1, 4..=6),
            run(&source, 2, 1..=2),
            run(&source, 1, 7..=7),
        ];
        commit(&source, runs, records.into_iter().chain([other]).collect());
        let exported = folder.path().join("exported");
        let tables = [Table::Prompt];
        let ids = Ids::system();
        let file = ExportFile::create(&path, &exported, session(1), &tables, &ids).unwrap();
        file.add_file_part("a", true, b"one").unwrap();
        file.add_file_part("a", true, b"two").unwrap();
        file.finish().unwrap();

        let mut file = ExportFile::open(&exported, &ids).unwrap();
        assert_eq!(file.session(), session(1));
        let prompts = file.records(Table::Prompt).unwrap();
        assert_eq!(prompts.len(), 1);
        assert_eq!(prompts[0].0, key(1, &u32::MAX.to_be_bytes()));
        assert!(file.records(Table::Request).unwrap().is_empty());
        let mut parts = Vec::new();
        file.for_each_file_part(|path, is_executable, content| {
            parts.push((path.to_owned(), is_executable, content.to_owned()));
            Ok::<_, OpenError>(())
        })
        .unwrap();
        let part = |content: &[u8]| ("a".to_owned(), true, content.to_owned());
        assert_eq!(parts, [part(b"one"), part(b"two")]);

        let target = open(&folder.path().join("target"));
        commit(&target, vec![run(&target, 3, 1..=5)], Vec::new());
        let owner = UserId::from_text("other");
        let record = RecordState::present(Table::Session, "s", "1");
        let time = Timestamp::from_millis(7);
        let moved = file.move_to(session(9), &owner, &target.epoch());
        assert_eq!(moved.unwrap(), Some(7));
        let runs = target.import(&file, &owner, &[record], time);
        let positions = runs.unwrap().unwrap();
        let positions: Vec<u64> = positions.iter().map(|run| run.last_pos).collect();
        assert_eq!(positions, [8, 9]);
        let read = target.read(session(9), 0, 10_000).unwrap();
        assert_eq!(seqs(&read), [4, 5, 6, 7]);
        let expected = Run {
            session: session(9),
            ..run(&target, 9, 4..=6)
        };
        assert_eq!(read[0].frames, expected.frames);
        assert_eq!(read[0].owner, owner);
        assert!(target.get(Table::Session, b"s").unwrap().is_some());
        let usage = target.usage(session(9)).unwrap();
        assert_eq!(
            (usage.first_seq, usage.last_seq, usage.last_time),
            (4, 7, time)
        );
        drop(target);
        let reopened = open(&folder.path().join("target"));
        assert_eq!(reopened.tail().last_pos, 9);
        assert_eq!(reopened.usage(session(9)), Some(usage));
    }
}
