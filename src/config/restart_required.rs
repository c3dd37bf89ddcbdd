//! Configuration changes that apply only after a restart.

use super::{Config, keys};

impl Config {
    /// Lists the keys whose values differ in `next` and apply only after a restart. A reload applies agents, MCP
    /// servers and the admin key, which are not in the table of keys.
    pub fn changes_that_need_restart(&self, next: &Self) -> Vec<String> {
        let differing =
            keys::all().filter(|key| !key.is_reloadable() && (key.show)(self) != (key.show)(next));
        differing.map(super::key::Key::path).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{Flags, load};

    #[test]
    fn only_keys_that_need_a_restart_are_listed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("gateway.toml");
        let read = |text: &str| {
            std::fs::write(&file, text).unwrap();
            let flags = Flags { config: Some(file.clone()), ..Flags::default() };
            load(&flags, &[("HOME", "/")].into_iter().collect(), &|_| false).unwrap()
        };
        let first = read("");
        let taken = "[agents.a]\ncommand = \"a\"\n[mcp.docs]\nurl = \"https://mcp.example\"\n[limits.per_key]\nmax_streams = 3\n";
        assert_eq!(first.changes_that_need_restart(&read(taken)), Vec::<String>::new());
        let here = folder.path().display();
        let all = format!(
            "[server]\nlisten = \"127.0.0.1:1\"\ndata_dir = \"{here}\"\npublic_url = \"https://a.example\"\n\
             trusted_proxies = [\"10.0.0.1\"]\ninsecure_http = true\n[auth]\nallowed_origins = [\"https://b.example\"]\n\
             [telemetry]\nlog_filter = \"debug\"\n[workspaces]\nroot = \"{here}/root\"\nallow = [\"{here}\"]\n\
             [timeouts]\ndrain_timeout = \"9s\"\n"
        );
        assert_eq!(
            first.changes_that_need_restart(&read(&all)),
            [
                "server.listen",
                "server.data_dir",
                "server.public_url",
                "server.trusted_proxies",
                "server.insecure_http",
                "auth.allowed_origins",
                "workspaces.root",
                "workspaces.allow",
                "telemetry.log_filter",
                "timeouts.drain_timeout",
            ]
        );
    }
}
