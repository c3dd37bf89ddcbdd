//! Logs of formats that no released version wrote.

use std::os::unix::fs::FileExt as _;

use crate::support::Setup;

use super::{file, output_text, run};

#[tokio::test]
async fn log_of_an_unknown_format_is_rejected_unchanged() {
    /// Where SQLite keeps the version of a file's format.
    const VERSION_AT: u64 = 60;
    for version in [1_u32, 2, 3, 4, 8] {
        let mut gateway = Setup::fake(&[]).start();
        assert_eq!(gateway.stop(), Some(0));
        let log = std::fs::File::options()
            .write(true)
            .open(file(&gateway))
            .expect("the log");
        log.write_all_at(&version.to_be_bytes(), VERSION_AT)
            .expect("the file is ours");
        let before = std::fs::read(file(&gateway)).expect("the log");
        for command in [&["serve"][..], &["key", "list"], &["backup", "-"]] {
            let text = output_text(&run(&gateway, command), false);
            let named = format!("the file has format {version}");
            assert!(
                text.contains(&named),
                "{command:?} with version {version}: {text}"
            );
            assert!(
                std::fs::read(file(&gateway)).expect("the log") == before,
                "{command:?}"
            );
        }
    }
}
