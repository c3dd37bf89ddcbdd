//! The use of the gateway by commands on this machine: the control socket, and the end of a gateway that nobody uses.

use std::io;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};

use super::Gateway;
use crate::control::{BoundSocket, ControlClients, ControlServer, FolderRules};
use crate::server::ConnectionUse;
use agents::pool::Pool;
use base::shutdown::Shutdown;
use base::types::Ids;

const MAX_INTERVAL: Duration = Duration::from_secs(1);

impl Gateway {
    /// Starts the control socket. The gateway stops when nobody has used it for `exit_when_idle`. `url` is its URL on this
    /// machine.
    pub fn serve_local(&self, url: String, exit_when_idle: Option<Duration>) -> io::Result<()> {
        let (config, shutdown) = (&self.reloader.config, &self.shutdown);
        let roots = std::iter::once(&config.workspaces.root)
            .chain(&config.workspaces.allow)
            .cloned();
        let home = config.child_environment.home.as_deref();
        let clients = ControlClients::default();
        if let Some(after) = exit_when_idle {
            let connections = self.connection_use.clone();
            let (pool, clients) = (self.reloader.pool.clone(), clients.clone());
            let watch = IdleWatch {
                pool,
                connections,
                clients,
                shutdown: shutdown.clone(),
            };
            shutdown.spawn(watch.run(after));
        }
        let socket = BoundSocket::bind(&config.data.private(), &Ids::system())?;
        let server = ControlServer {
            keys: self.keys.clone(),
            rules: FolderRules::new(roots, config.data.path(), home),
            url,
            exits_when_idle: exit_when_idle.is_some(),
            clients,
            shutdown: shutdown.clone(),
        };
        server.start(socket)
    }
}

/// Ends a gateway that nobody uses: no editor, no client with a key, no turn and no queued prompt.
struct IdleWatch {
    pool: Pool,
    connections: ConnectionUse,
    clients: ControlClients,
    shutdown: Shutdown,
}

impl IdleWatch {
    async fn run(self, after: Duration) {
        let mut ticks = interval((after / 4).clamp(Duration::from_millis(10), MAX_INTERVAL));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut last_use, mut connections) = (Instant::now(), self.connections.total());
        loop {
            tokio::select! {
                () = self.shutdown.drain_started() => return,
                _ = ticks.tick() => {}
            }
            let former = std::mem::replace(&mut connections, self.connections.total());
            let is_used = connections != former
                || self.connections.open() > 0
                || self.clients.count() > 0
                || self.pool.is_busy();
            if is_used {
                last_use = Instant::now();
            } else if last_use.elapsed() >= after {
                tracing::info!("nobody uses the gateway; stopping");
                return self.shutdown.start_drain();
            }
        }
    }
}
