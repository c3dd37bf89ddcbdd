//! The use of the gateway by commands on this machine: the control socket, and the end of a gateway that nobody uses.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};

use super::Gateway;
use crate::control::{BoundSocket, ControlClients, ControlServer, FolderRules, Import};
use crate::server::ConnectionUse;
use agents::pool::Pool;
use base::shutdown::Shutdown;
use base::telemetry::ErrorChain;
use base::types::Ids;

const MAX_INTERVAL: Duration = Duration::from_secs(1);

impl Gateway {
    /// Starts the control socket. The gateway stops when nobody has used it for `exit_when_idle`. `url` is its URL on this
    /// machine.
    pub fn serve_local(&self, url: String, exit_when_idle: Option<Duration>) -> io::Result<()> {
        let config = &self.reloader.config;
        let shutdown = &self.shutdown;
        let roots = std::iter::once(&config.workspaces.root).chain(&config.workspaces.allow);
        let home = config.child_environment.home.as_deref();
        let clients = ControlClients::default();
        if let Some(after) = exit_when_idle {
            shutdown.spawn(stop_when_idle(
                after,
                self.reloader.pool.clone(),
                self.connection_use.clone(),
                clients.clone(),
                shutdown.clone(),
            ));
        }
        let socket = BoundSocket::bind(&config.data.private(), &Ids::system())?;
        let server = ControlServer {
            keys: self.keys.clone(),
            import: self.import(),
            rules: FolderRules::new(roots.cloned(), config.data.path(), home),
            url,
            exits_when_idle: exit_when_idle.is_some(),
            clients,
            shutdown: shutdown.clone(),
        };
        server.start(socket)
    }

    fn import(&self) -> Import {
        let sessions = self.sessions.clone();
        let store = Arc::clone(&self.store);
        let private = self.reloader.config.data.private();
        let shutdown = self.shutdown.clone();
        Arc::new(move |file, owner| {
            let sessions = sessions.clone();
            let store = Arc::clone(&store);
            let path = private.join(&file);
            let is_name = path.file_name() == Some(file.as_ref());
            let import = async move {
                if !is_name {
                    return Err("the file is not in the private folder".to_owned());
                }
                let imported = sessions.import(store, path, owner).await;
                let imported = imported.map_err(|error| ErrorChain(&error).to_string())?;
                serde_json::to_value(imported).map_err(|error| error.to_string())
            };
            // The import continues if its command is stopped.
            let running = shutdown.spawn_isolated(import);
            Box::pin(async move {
                let imported = running.await;
                imported.unwrap_or_else(|lost| Err(lost.to_string()))
            })
        })
    }
}

/// Ends a gateway that nobody uses: no editor, no client with a key, no turn and no queued prompt.
async fn stop_when_idle(
    after: Duration,
    pool: Pool,
    connections: ConnectionUse,
    clients: ControlClients,
    shutdown: Shutdown,
) {
    let mut ticks = interval((after / 4).clamp(Duration::from_millis(10), MAX_INTERVAL));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last_use = Instant::now();
    let mut total = connections.total();
    loop {
        tokio::select! {
            () = shutdown.drain_started() => return,
            _ = ticks.tick() => {}
        }
        let previous = std::mem::replace(&mut total, connections.total());
        let is_used =
            total != previous || connections.open() > 0 || clients.count() > 0 || pool.is_busy();
        if is_used {
            last_use = Instant::now();
        } else if last_use.elapsed() >= after {
            tracing::info!("nobody uses the gateway; stopping");
            return shutdown.start_drain();
        }
    }
}
