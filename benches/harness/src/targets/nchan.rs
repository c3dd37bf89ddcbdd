//! nginx with nchan and the bridge.

use std::ffi::OsStr;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use super::{Amounts, Bridged, Places, Running, Target, absent};
use crate::server::{Server, free_port};
use crate::{Outcome, proc};

const NGINX: &str = "/usr/sbin/nginx";
const MODULE: &str = "/usr/lib/nginx/modules/ngx_nchan_module.so";

#[derive(Debug)]
pub(super) struct Nchan(pub(super) Places);

impl Target for Nchan {
    fn name(&self) -> &'static str {
        "nchan"
    }

    fn title(&self) -> String {
        "nchan 1.3.6 behind a bridge".to_owned()
    }

    fn amounts(&self) -> Amounts {
        // A channel accepts about 32,000 messages per second and drops the others.
        Amounts {
            single: 30_000,
            fan: Some(500),
            sessions: Some(300),
            idle: Some(10_000),
            replay: None,
            stalled: None,
        }
    }

    fn missing(&self) -> Option<String> {
        absent(Path::new(NGINX)).or_else(|| absent(Path::new(MODULE)))
    }

    fn start(&self, folder: &Path) -> Outcome<Box<dyn Running>> {
        let address = free_port()?;
        let config = folder.join("nchan.conf");
        fs::write(&config, configuration(folder, address))?;
        let command: [&OsStr; 5] = [
            NGINX.as_ref(),
            "-e".as_ref(),
            "stderr".as_ref(),
            "-c".as_ref(),
            config.as_ref(),
        ];
        let mut server = Server::start(&command, &[], folder.join("nchan.log"))?;
        server.listens(address)?;
        // The master listens before its worker exists, and only the worker does measurable work.
        while proc::children(server.pid()).is_empty() {
            std::thread::sleep(Duration::from_millis(5));
        }
        Bridged::start(&self.0, folder, (server, address), "lines", |_, number| {
            Ok(format!("/sub?id=s{number}"))
        })
    }
}

/// The fastest configuration: no logs, no compression, and every message is kept for the duration of a measurement.
fn configuration(folder: &Path, address: SocketAddr) -> String {
    let folder = folder.display();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("  {name}_temp_path {folder}/{name};\n"))
        .concat();
    let kept = "nchan_message_buffer_length 300000; nchan_message_timeout 60s;";
    format!(
        "load_module {MODULE};
worker_processes 1;
worker_rlimit_nofile 20000;
daemon off;
pid {folder}/nchan.pid;
events {{ worker_connections 15000; }}
http {{
{temporary}  access_log off;
  keepalive_requests 100000000; keepalive_timeout 600s;
  tcp_nodelay on;
  nchan_shared_memory_size 1024m;
  server {{
    listen {address} backlog=4096;
    location /health {{ return 200 ok; }}
    location /pub {{ nchan_publisher; nchan_channel_id $arg_id; {kept} }}
    location /sub {{
      nchan_subscriber eventsource; nchan_channel_id $arg_id; nchan_subscriber_first_message newest; {kept}
    }}
  }}
}}
"
    )
}
