//! One process of the member: a task between its pipes and the driver.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tokio::io::AsyncReadExt as _;
use tokio::sync::{Semaphore, mpsc};

use crate::fleet::{ChannelId, ProcessEnd};
use crate::process::{ChildSpec, Spawner};
use crate::shutdown::Shutdown;

/// The number of lines that wait for the task of a process.
const QUEUED_COMMANDS: usize = 1024;
const READ_BYTES: usize = 64 << 10;

/// A command for the process. Dropping the handle stops the process.
#[derive(Debug)]
pub(super) enum ProcessCommand {
    Line(Bytes),
    Close,
}

/// Something that the process did.
#[derive(Debug)]
pub(super) enum ProcessEvent {
    Output(Bytes),
    Ended(ProcessEnd),
}

/// The handle on a process. Dropping it stops the process.
#[derive(Debug)]
pub(super) struct ProcessHandle {
    commands: mpsc::Sender<ProcessCommand>,
    /// One permit is one read of the output.
    reads: Arc<Semaphore>,
}

impl ProcessHandle {
    pub(super) fn start(
        (spawner, spec): (&Spawner, ChildSpec),
        channel: ChannelId,
        events: mpsc::Sender<(ChannelId, ProcessEvent)>,
        shutdown: &Shutdown,
    ) -> Self {
        let (sender, commands) = mpsc::channel(QUEUED_COMMANDS);
        let reads = Arc::new(Semaphore::new(1));
        let process =
            Process { spawner: spawner.clone(), channel, events, commands, reads: Arc::clone(&reads) };
        shutdown.spawn_isolated(process.run(spec));
        Self { commands: sender, reads }
    }

    /// Passes a command to the process. A process that does not accept its commands is stopped.
    pub(super) fn send(&self, command: ProcessCommand) -> bool {
        self.commands.try_send(command).is_ok()
    }

    /// Permits one more read of the output.
    pub(super) fn permit_read(&self) {
        self.reads.add_permits(1);
    }
}

/// The task of a process.
struct Process {
    spawner: Spawner,
    channel: ChannelId,
    events: mpsc::Sender<(ChannelId, ProcessEvent)>,
    commands: mpsc::Receiver<ProcessCommand>,
    reads: Arc<Semaphore>,
}

impl Process {
    async fn run(mut self, spec: ChildSpec) {
        let mut child = match self.spawner.spawn(spec).await {
            Ok(child) => child,
            Err(error) => {
                tracing::warn!(channel = %self.channel, %error, "could not start the agent");
                let reason = Some(format!("could not start the agent: {error}"));
                return self
                    .report(ProcessEvent::Ended(ProcessEnd { reason, ..ProcessEnd::default() }))
                    .await;
            }
        };
        let (stdin, mut stdout) = (child.stdin(), child.take_stdout());
        let mut buffer = BytesMut::new();
        loop {
            tokio::select! {
                command = self.commands.recv() => match command {
                    Some(ProcessCommand::Line(line)) => {
                        if let Err(error) = stdin.send_reserved(line) {
                            tracing::warn!(channel = %self.channel, %error, "the agent does not read its input; stopping it");
                            child.begin_stop();
                        }
                    }
                    Some(ProcessCommand::Close) => child.begin_stop(),
                    // The gateway needs the process no more, or this program ends.
                    None => {
                        child.stop().await;
                        return;
                    }
                },
                read = read_permitted(&self.reads, stdout.as_mut(), &mut buffer), if stdout.is_some() => match read {
                    Ok(1..) => self.report(ProcessEvent::Output(buffer.split().freeze())).await,
                    Ok(0) | Err(_) => stdout = None,
                },
                exit = child.exited(), if stdout.is_none() => {
                    let stalled = child.stop_reason().map(|reason| reason.to_string());
                    let (exit_code, signal, stderr_tail) = (exit.code, exit.signal, child.stderr().tail());
                    let end = ProcessEnd { exit_code, signal, stderr_tail, reason: stalled };
                    return self.report(ProcessEvent::Ended(end)).await;
                }
            }
        }
    }

    async fn report(&self, event: ProcessEvent) {
        // The driver has ended.
        drop(self.events.send((self.channel, event)).await);
    }
}

/// Reads when the driver permits it. Cancel-safe.
async fn read_permitted(
    reads: &Semaphore,
    stdout: Option<&mut tokio::process::ChildStdout>,
    buffer: &mut BytesMut,
) -> std::io::Result<usize> {
    let Some(stdout) = stdout else { return Ok(0) };
    let permit = reads.acquire().await.map_err(std::io::Error::other)?;
    buffer.reserve(READ_BYTES);
    let mut limited = stdout.take(READ_BYTES as u64);
    let read = limited.read_buf(buffer).await?;
    permit.forget();
    Ok(read)
}
