//! The version of an agent with `dialect = "stream-json"`.

use std::os::unix::fs::PermissionsExt;

use crate::support::Setup;
use crate::support::places::{fake_agent, gateway_program};

#[tokio::test]
async fn version_of_the_cli_is_what_its_command_prints_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let asked = folder.path().join("asked");
    let command = |name: &str, output: &str| {
        let path = folder.path().join(name);
        let script = format!(
            "#!/bin/sh\nif [ \"$*\" = --version ]; then echo {name} >>{asked:?}; {output}; fi\n\
             exec {} translate --from acp --to stream-json -- {}\n",
            gateway_program(),
            fake_agent()
        );
        std::fs::write(&path, script).expect("the folder is ours");
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&path, executable).expect("the folder is ours");
        path.into_os_string().into_string().expect("UTF-8")
    };
    let more = "dialect = \"stream-json\"\nisolation = \"off\"";
    let cases = [
        ("known", "echo '2.1.197 (Claude Code)'; exit", "2.1.197"),
        ("text", "echo 'unknown option'; exit 1", "unknown"),
        // It does not know the argument, and starts.
        ("started", ":", "unknown"),
    ];
    let mut setup = Setup::default();
    for (name, output, _) in cases {
        setup = setup.agent(name, &command(name, output), &[], more);
    }
    let gateway = setup.start();
    for (name, _, version) in cases {
        for _ in 0..2 {
            let session = gateway.session(name).await;
            assert_eq!(gateway.turn(&session, "echo x").await["text"], "x");
        }
        let agent = gateway.get(&format!("/v1/agents/{name}")).await;
        assert_eq!(agent["version"], version, "{agent}");
    }
    let asked = std::fs::read_to_string(&asked).expect("each command was asked");
    assert_eq!(asked, "known\ntext\nstarted\n");
}
