//! Faults when a session moves from one process to another: locks, refusals, wrong answers and late history.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::agent::Agent;
use super::flags::Flags;
use super::wire::{Wire, string};

/// The pause between two updates that follow the answer to `session/load`.
const LATE_HISTORY_PAUSE: Duration = Duration::from_millis(40);

fn state_sibling(state: Option<&Path>, ending: &str) -> PathBuf {
    let mut name = state
        .expect("this flag needs --state")
        .as_os_str()
        .to_owned();
    name.push(ending);
    name.into()
}

/// Locks a session until this process ends. Fails with the pid of the process that holds the lock.
fn lock(flags: &Flags, session: &str) -> Result<(), u32> {
    let folder = state_sibling(flags.state.as_deref(), ".locks");
    std::fs::create_dir_all(&folder).expect("the directory of the test is writable");
    let file = folder.join(session);
    let holder = std::fs::read_to_string(&file)
        .ok()
        .and_then(|text| text.parse::<u32>().ok());
    match holder {
        Some(pid) if pid != std::process::id() && Path::new(&format!("/proc/{pid}")).exists() => {
            Err(pid)
        }
        _ => {
            std::fs::write(file, std::process::id().to_string())
                .expect("the directory is writable");
            Ok(())
        }
    }
}

/// Decrements the number in the file of `--refuse-restore` or `--auth-at-load`. Returns true if it was not 0.
pub(crate) fn should_refuse(file: &Path) -> bool {
    let left = std::fs::read_to_string(file)
        .ok()
        .and_then(|text| text.trim().parse::<u32>().ok());
    let Some(left) = left.filter(|left| *left > 0) else {
        return false;
    };
    std::fs::write(file, (left - 1).to_string()).expect("the file of the test is writable");
    true
}

/// Answers `session/load` or `session/resume` instead of the agent, if a flag requires it.
pub(crate) fn answer_by_flag(wire: &Wire, flags: &Flags, id: &str, session: &str) -> bool {
    if flags.refuse_restore.as_deref().is_some_and(should_refuse) {
        let data = r#"{"details":"The service is experiencing high demand."}"#;
        match &flags.refusal {
            Some(refusal) => wire.fail(id, -32600, refusal, None),
            None => wire.fail(id, -32603, "Internal error", Some(data.to_owned())),
        }
    } else if flags.false_load {
        wire.answer(id, "{}");
    } else if flags.lock
        && let Err(pid) = lock(flags, session)
    {
        let message = "Invalid request: This session is in use by another client.";
        let data = format!(
            r#"{{"reason":"thread_active_writer","threadId":{},"pid":{pid}}}"#,
            string(session)
        );
        wire.fail(id, -32600, message, Some(data));
    } else {
        return false;
    }
    true
}

/// Locks a session that this process created, if `flags.lock` is set.
pub(crate) fn session_created(flags: &Flags, session: &str) {
    if flags.lock {
        lock(flags, session).expect("a new session has a new id");
    }
}

/// Answers `session/load` after the first update and sends the others later.
pub(crate) fn load_late(
    wire: &Arc<Wire>,
    id: &str,
    session: &str,
    history: Vec<String>,
    result: &str,
) {
    let mut history = history.into_iter();
    for update in history.by_ref().take(1) {
        wire.update(session, update);
    }
    wire.answer(id, result);
    let wire = Arc::clone(wire);
    let session = session.to_owned();
    std::thread::Builder::new()
        .spawn(move || {
            for update in history {
                std::thread::sleep(LATE_HISTORY_PAUSE);
                wire.update(&session, update);
            }
        })
        .expect("the machine has room for a thread");
}

impl Agent {
    /// Answers a prompt for a session that this process does not have.
    pub(crate) fn unknown_session_in_prompt(&self, id: &str, session: &str) {
        if !self.flags.false_load {
            return self.unknown_session(id, session);
        }
        let data = format!(r#"{{"sessionId":{}}}"#, string(session));
        self.wire.fail(id, -32602, "Invalid params", Some(data));
    }
}
