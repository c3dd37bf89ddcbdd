//! Configuration changes that apply only after a restart.

use super::{Config, limits};
use crate::types::PrincipalLimit;

impl Config {
    /// Lists the keys whose values differ in `next` and apply only after a restart.
    pub fn changes_that_need_restart(&self, next: &Self) -> Vec<String> {
        let Self {
            listen,
            data,
            public_url,
            allowed_origins,
            behind_proxy,
            insecure_http,
            workspaces,
            limits,
            log,
            // A reload applies these keys.
            agents: _,
            mcp: _,
            admin_key: _,
            // The environment of the start determines these fields, or they are not keys.
            child_environment: _,
            warnings: _,
            origins: _,
        } = self;
        let keys = [
            ("listen", listen != &next.listen),
            ("data", data != &next.data),
            ("public_url", public_url != &next.public_url),
            ("allowed_origins", allowed_origins != &next.allowed_origins),
            ("behind_proxy", behind_proxy != &next.behind_proxy),
            ("insecure_http", insecure_http != &next.insecure_http),
            ("workspaces.root", workspaces.root != next.workspaces.root),
            ("workspaces.allow", workspaces.allow != next.workspaces.allow),
            ("log", log != &next.log),
        ];
        let differing = keys.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key.to_owned());
        let shown = limits::shown(limits).into_iter().zip(limits::shown(&next.limits));
        let of_principals = |name: &str| PrincipalLimit::ALL.iter().any(|limit| limit.key() == name);
        let limits = shown
            .filter(|(ours, theirs)| ours != theirs && !of_principals(ours.0))
            .map(|((name, _), _)| format!("limits.{name}"));
        differing.chain(limits).collect()
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
        let taken =
            "[agents.a]\ncommand = \"a\"\n[mcp.docs]\nurl = \"https://mcp.example\"\n[limits]\nstreams = 3\n";
        assert_eq!(first.changes_that_need_restart(&read(taken)), Vec::<String>::new());
        let here = folder.path().display();
        let all = format!(
            "listen = \"127.0.0.1:1\"\ndata = \"{here}\"\npublic_url = \"https://a.example\"\n\
             allowed_origins = [\"https://b.example\"]\nbehind_proxy = [\"10.0.0.1\"]\ninsecure_http = true\n\
             log = \"debug\"\n[workspaces]\nroot = \"{here}/root\"\nallow = [\"{here}\"]\n[limits]\ndrain = \"9s\"\n"
        );
        assert_eq!(
            first.changes_that_need_restart(&read(&all)),
            [
                "listen",
                "data",
                "public_url",
                "allowed_origins",
                "behind_proxy",
                "insecure_http",
                "workspaces.root",
                "workspaces.allow",
                "log",
                "limits.drain"
            ]
        );
    }
}
