//! `audit export|verify`: reads the audit log from the store, also while a gateway runs.

use std::io::{self, BufWriter, Write};

use bytes::BytesMut;
use clap::Subcommand;

use super::output;
use super::output::Failure;
use super::source::open_beside_gateway;
use crate::app;
use crate::config::Flags;
use crate::stream::{Encoder as _, Ndjson};
use base::types::{Ids, Timestamp};
use events::event::AuditLink;
use log::audit::Archive;
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
    },
    /// Verify the hash chain: fails if an event was changed or removed
    Verify,
}

#[derive(Debug, thiserror::Error)]
enum AuditError {
    #[error("could not read the audit log")]
    Read(#[from] ReadError),
    #[error("could not write the events")]
    Write(#[from] io::Error),
}

pub(super) fn run(command: &AuditCommand, flags: &Flags) -> Result<(), Failure> {
    let (gateway, _lock) = open_beside_gateway(flags)?;
    let store = app::open_store(&gateway.data, &gateway.limits.log, &Ids::system())?;
    let archive = Archive(&*store);
    match command {
        AuditCommand::Export { since, until } => {
            let included = |time| {
                since.is_none_or(|since| time >= since) && until.is_none_or(|until| time < until)
            };
            match export(&archive, &included) {
                // The reader of stdout stopped early.
                Err(AuditError::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
                    Ok(())
                }
                exported => Ok(exported?),
            }
        }
        AuditCommand::Verify => {
            let log = archive.verify()?;
            let events = match log.last_seq {
                0 => "no events".to_owned(),
                last => format!(
                    "events {} to {last}, last hash {}",
                    log.first_seq, log.last_hash
                ),
            };
            let pending = log.pending;
            let text = format!("the audit log is intact: {events}, {pending} pending");
            Ok(output::write_line(&text)?)
        }
    }
}

fn export(
    archive: &Archive<'_, SqliteStore>,
    included: &dyn Fn(Timestamp) -> bool,
) -> Result<(), AuditError> {
    let mut out = BufWriter::new(io::stdout().lock());
    let mut line = BytesMut::new();
    archive.for_each(0, |event| {
        // An event that cannot be read is exported too.
        if AuditLink::of(event).is_none_or(|link| included(link.time)) {
            Ndjson.event(&mut line, &String::new, event);
            out.write_all(&line.split())?;
        }
        Ok::<_, AuditError>(())
    })?;
    for entry in archive
        .pending()?
        .iter()
        .filter(|entry| included(entry.time))
    {
        serde_json::to_writer(&mut out, entry).map_err(io::Error::from)?;
        out.write_all(b"\n")?;
    }
    Ok(out.flush()?)
}
