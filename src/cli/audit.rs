//! `audit export|verify`: reads the audit log from the store, also while a gateway runs, or from the file of an export.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::path::PathBuf;

use bytes::BytesMut;
use clap::Subcommand;

use super::output;
use super::output::Failure;
use super::source::open_beside_gateway;
use crate::app;
use crate::config::Flags;
use crate::stream::{Encoder as _, Ndjson};
use base::types::{Ids, SessionId, Timestamp};
use events::event::AuditLink;
use log::audit::{Archive, ExportError, Verified, verify_export};
use log::store::{ReadError, SqliteStore};

#[derive(Debug, Subcommand)]
pub(super) enum AuditCommand {
    /// Print the events, one JSON object on each line
    Export {
        /// Only events at or after this time, such as 2026-11-23T00:00:00.000Z
        #[arg(long, value_name = "TIME")]
        since: Option<Timestamp>,
        /// Only events before this time
        #[arg(long, value_name = "TIME")]
        until: Option<Timestamp>,
        /// Only events with a number that are about this session
        #[arg(long, value_name = "ID")]
        session: Option<SessionId>,
    },
    /// Verify the hash chain: fails if an event was changed or removed
    Verify {
        /// Verify consecutive events that `audit export` printed, without a data folder
        #[arg(long)]
        file: Option<PathBuf>,
    },
}

#[derive(Debug, thiserror::Error)]
enum AuditError {
    #[error("could not read the audit log")]
    Read(#[from] ReadError),
    #[error("could not write the events")]
    Write(#[from] io::Error),
    #[error("{}", .0.display())]
    File(PathBuf, #[source] ExportError),
}

/// The events that an export prints.
#[derive(Debug, Clone, Copy)]
struct Selection {
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    session: Option<SessionId>,
}

impl Selection {
    fn contains_time(self, time: Timestamp) -> bool {
        self.since.is_none_or(|since| time >= since) && self.until.is_none_or(|until| time < until)
    }

    fn contains(self, event: &AuditLink<'_>) -> bool {
        self.contains_time(event.time)
            && (self.session.is_none() || self.session == event.session_id)
    }
}

pub(super) fn run(command: &AuditCommand, flags: &Flags) -> Result<(), Failure> {
    if let AuditCommand::Verify { file: Some(file) } = command {
        let failed = |error| AuditError::File(file.clone(), error);
        let lines = File::open(file).map_err(|error| failed(error.into()))?;
        let events = verify_export(BufReader::new(lines)).map_err(failed)?;
        return print_verified("the events are intact", &events);
    }
    let (gateway, _lock) = open_beside_gateway(flags)?;
    let store = app::open_store(&gateway.data, &gateway.limits.log, &Ids::system())?;
    let archive = Archive(&*store);
    match command {
        AuditCommand::Export {
            since,
            until,
            session,
        } => {
            let selection = Selection {
                since: *since,
                until: *until,
                session: *session,
            };
            match export(&archive, selection) {
                // The reader of stdout stopped early.
                Err(AuditError::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
                    Ok(())
                }
                exported => Ok(exported?),
            }
        }
        AuditCommand::Verify { .. } => {
            print_verified("the audit log is intact", &archive.verify()?)
        }
    }
}

fn print_verified(verdict: &str, log: &Verified) -> Result<(), Failure> {
    let events = match log.last_seq {
        0 => "no events".to_owned(),
        last => format!(
            "events {} to {last}, last hash {}",
            log.first_seq, log.last_hash
        ),
    };
    let pending = log.pending;
    let text = format!("{verdict}: {events}, {pending} pending");
    Ok(output::write_line(&text)?)
}

fn export(archive: &Archive<'_, SqliteStore>, selection: Selection) -> Result<(), AuditError> {
    let mut out = BufWriter::new(io::stdout().lock());
    let mut line = BytesMut::new();
    archive.for_each(0, |event| {
        // An event that cannot be read is exported too.
        if AuditLink::of(event).is_none_or(|link| selection.contains(&link)) {
            Ndjson.event(&mut line, &String::new, event);
            out.write_all(&line.split())?;
        }
        Ok::<_, AuditError>(())
    })?;
    if selection.session.is_some() {
        // The chain must cover each event of the session.
        return Ok(out.flush()?);
    }
    for entry in archive.pending()? {
        if selection.contains_time(entry.time) {
            serde_json::to_writer(&mut out, &entry).map_err(io::Error::from)?;
            out.write_all(b"\n")?;
        }
    }
    Ok(out.flush()?)
}
