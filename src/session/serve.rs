//! Requests of the agent that the gateway serves itself: files and terminals. The owner starts the work and hears of
//! its end; it never waits for it.

use tokio::sync::mpsc;

use super::actor::Actor;
use super::requests::Outcome;
use crate::acp::error_code;
use crate::jsonrpc::IncomingId;

/// What came of a request.
#[derive(Debug)]
pub(super) struct Served {
    process: u64,
    incoming: IncomingId,
    outcome: Outcome,
}

/// Where what is served comes in, and how much of it is on its way.
#[derive(Debug)]
pub(super) struct Serving {
    done: mpsc::Sender<Served>,
    /// Counts the processes that this owner had: numbers of requests mean others on the next one.
    process: u64,
    open: usize,
}

impl Serving {
    pub(super) fn new(done: mpsc::Sender<Served>) -> Self {
        Self { done, process: 0, open: 0 }
    }

    /// The process is gone; what is still served for it has nobody to hear of it.
    pub(super) fn forget(&mut self) {
        self.process += 1;
        self.open = 0;
    }

    /// Something of this process is being served.
    pub(super) fn is_busy(&self) -> bool {
        self.open > 0
    }
}

impl Actor {
    /// Runs `work` beside the owner, and answers the agent with what comes of it.
    pub(super) fn serve(
        &mut self,
        incoming: IncomingId,
        work: impl Future<Output = Outcome> + Send + 'static,
    ) {
        if self.serving.open >= self.context.limits.pending_requests {
            return self.refuse(incoming, error_code::INTERNAL, "too many requests are being served");
        }
        self.serving.open += 1;
        let (done, process) = (self.serving.done.clone(), self.serving.process);
        self.context.shutdown.spawn(async move {
            let outcome = work.await;
            // An owner that has ended has given its process back.
            drop(done.send(Served { process, incoming, outcome }).await);
        });
    }

    pub(super) fn served(&mut self, Served { process, incoming, outcome }: Served) {
        if process == self.serving.process {
            self.serving.open -= 1;
            self.send_answer(incoming, &outcome);
        }
    }
}
