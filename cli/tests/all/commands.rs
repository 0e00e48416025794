//! `hold`, `status`, `doctor` and `migrate`.

use std::io::{Read, pipe};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::Signal;
use testbed::in_some_run;

use crate::support::{Running, command, fill, redis, run};

fn is_free(url: &str) -> bool {
    let status = run(url, &["status", "--lock", "a"]);
    assert!(matches!(status.code, Some(0 | 1)), "{status:?}");
    status.code == Some(1)
}

#[testbed::test]
async fn hold_prints_the_token_and_ends_with_its_input() {
    let server = redis().await;
    let mut holder = Running::start(&server.url(), &["hold", "--lock", "a"]);
    let line = holder.line();
    assert!(
        line.strip_prefix("token ")
            .is_some_and(|token| token.parse::<u64>().is_ok()),
        "{line}"
    );
    assert!(!is_free(&server.url()));
    holder.close_input();
    assert_eq!(holder.end().code, Some(0));
    assert!(is_free(&server.url()));
}

/// As `&` has it in a script: its input is /dev/null.
#[testbed::test]
async fn hold_says_that_its_input_has_ended() {
    let server = redis().await;
    for (how, said) in [(&[][..], true), (&["-q"], false)] {
        let ended = run(&server.url(), &[&["hold", "--lock", "a"], how].concat());
        assert_eq!((ended.code, ended.output.len()), (Some(0), 1), "{ended:?}");
        let message = "polylock: standard input has ended: releasing";
        assert_eq!(ended.messages == message, said, "{ended:?}");
    }
}

#[testbed::test]
async fn hold_ends_by_a_signal_or_after_a_time() {
    let server = redis().await;
    let holder = Running::start(&server.url(), &["hold", "--lock", "a", "--lock", "b", "--json"]);
    for line in [holder.line(), holder.line()] {
        let held: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        assert!(held["name"].is_string() && held["token"].is_string(), "{line}");
    }
    holder.signal(Signal::TERM);
    assert_eq!(holder.end().code, Some(0));
    assert!(is_free(&server.url()));
    let timed = run(
        &server.url(),
        &["hold", "--lock", "a", "--for", "1ms", "--ignore-stdin"],
    );
    assert_eq!(timed.code, Some(0), "{timed:?}");
    assert!(is_free(&server.url()));
}

#[testbed::test]
async fn hold_releases_if_nobody_reads_the_token() {
    let server = redis().await;
    let (reader, writer) = pipe().expect("a pipe");
    drop(reader);
    let mut hold = command(&server.url(), &["hold", "--lock", "a", "--ignore-stdin"]);
    let status = hold.stdout(writer).status().expect("it was built");
    assert!(!status.success(), "{status}");
    assert!(is_free(&server.url()));
}

#[testbed::test]
async fn hold_is_76_if_the_lock_is_lost() {
    let server = redis().await;
    let holder = Running::start(&server.url(), &["hold", "--lock", "a", "--ttl", "1s"]);
    holder.line();
    server.kill().expect("it runs");
    holder.wait_for_message("was lost");
    assert_eq!(holder.end().code, Some(76));
}

#[testbed::test]
async fn status_is_1_if_the_only_lock_is_free() {
    let server = redis().await;
    assert!(is_free(&server.url()));
    let both = run(&server.url(), &["status", "--lock", "a", "--lock", "b", "--json"]);
    assert_eq!((both.code, both.output.len()), (Some(0), 2), "{both:?}");
    let one: serde_json::Value = serde_json::from_str(&both.output[0]).expect("JSON");
    assert_eq!(one["held"], false);
    assert_eq!(one["holders"], serde_json::json!([]));
}

#[testbed::test]
async fn doctor_reports_what_the_library_checks() {
    let safe = redis().await;
    let well = run(&safe.url(), &["doctor"]);
    assert_eq!(well.code, Some(0), "{well:?}");
    assert!(
        well.output.iter().any(|line| line.starts_with("ok      acquire: ")),
        "{well:?}"
    );
    let forgetful = testbed::Redis::new()
        .setting("appendonly", ["no"])
        .password("secret")
        .start()
        .await;
    let forgetful = forgetful.expect("a server");
    let warned = run(&forgetful.url(), &["doctor", "--json"]);
    assert_eq!(warned.code, Some(1), "{warned:?}");
    let is_warning = |line: &String| line.contains("\"warn\"") && line.contains("this Redis can lose locks");
    assert!(warned.output.iter().any(is_warning), "{warned:?}");
    let crash = |line: &String| line.contains("\"server-crash\"") && line.contains("\"no\"");
    assert!(warned.output.iter().any(crash), "{warned:?}");
    let shown = format!("{warned:?}");
    assert!(!shown.contains("secret"), "{shown}");
}

#[testbed::test]
async fn doctor_lists_the_guarantees_and_a_command_refuses_a_server_that_misses_one() {
    let server = redis().await;
    let url = server.url();
    let doctor = run(&url, &["doctor"]);
    for line in [
        "yes     fifo: ",
        "yes     ttl:10ms: ",
        "no      failover: ",
        "no      clock-step: ",
    ] {
        assert!(
            doctor.output.iter().any(|shown| shown.starts_with(line)),
            "{line}{doctor:?}"
        );
    }
    let needs = [
        "run",
        "--lock",
        "a",
        "--require",
        "fifo,failover",
        "--",
        "echo",
        "started",
    ];
    let refused = run(&url, &needs);
    assert_eq!((refused.code, refused.output.len()), (Some(78), 0), "{refused:?}");
    assert!(
        refused.messages.contains("failover (a replica that is promoted"),
        "{refused:?}"
    );
    let kept = run(
        &format!("{url}?require=fifo,ttl:1s"),
        &["run", "--lock", "a", "--", "echo", "started"],
    );
    assert_eq!(
        (kept.code, kept.output),
        (Some(0), vec!["started".to_owned()]),
        "{}",
        kept.messages
    );
}

#[test]
fn doctor_is_78_without_a_server() {
    let ended = run("redis://:secret@127.0.0.1:1", &["doctor", "--connect-timeout", "1s"]);
    assert_eq!(ended.code, Some(78), "{ended:?}");
    assert!(ended.output.join("").starts_with("fail    connect: "), "{ended:?}");
    assert!(!format!("{ended:?}").contains("secret"), "{ended:?}");
}

#[test]
fn migrate_prints_the_sql() {
    let printed = run("", &["migrate", "--print", "--table", "shop_locks"]);
    let sql = printed.output.join("\n");
    assert_eq!(
        (printed.code, sql.matches("CREATE TABLE IF NOT EXISTS").count()),
        (Some(0), 5),
        "{sql}"
    );
    assert!(sql.contains("shop_locks_fences"), "{sql}");
    assert_eq!(run("", &["migrate", "--print", "--table", "a b"]).code, Some(78));
    let printed = run("", &["migrate", "--print=postgres", "--table", "shop_locks"]);
    let sql = printed.output.join("\n");
    assert_eq!(printed.code, Some(0), "{printed:?}");
    assert!(
        sql.contains("\"shop_locks_leases\"") && sql.contains("\"shop_locks_fences\""),
        "{sql}"
    );
}

/// Not the SQL for names that nobody has chosen.
#[test]
fn migrate_prints_nothing_for_a_configuration_that_is_wrong() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), "url = \"redis://h\"\ntll = \"3s\"\n").expect("it is ours");
    let config = file.path().to_str().expect("UTF-8");
    for server in [
        ["--url-file", "/no/such/file"],
        ["--config", "/no/such/file"],
        ["--config", config],
        ["--url", "mysq://h/shop"],
        ["--url", "quorum:postgres://h/shop|mysq://h/shop"],
    ] {
        for print in ["--print", "--print=mysql", "--print=postgres"] {
            let printed = run("", &[&["migrate", print][..], &server].concat());
            assert_eq!(
                (printed.code, printed.output.len()),
                (Some(78), 0),
                "{server:?}: {printed:?}"
            );
        }
    }
}

/// Of every server that the URL names, with what it says of them.
#[test]
fn migrate_prints_the_sql_of_the_url() {
    let postgres = "postgres://app@127.0.0.1:1/shop?schema=locks&require=failover&trusting=failover";
    for (url, print) in [
        (postgres, "--print"),
        (postgres, "--print=postgres"),
        (
            "quorum:redis://127.0.0.1:1|postgres://app@127.0.0.1:1/shop?schema=locks",
            "--print",
        ),
    ] {
        let printed = run(url, &["migrate", print]);
        let sql = printed.output.join("\n");
        let tables = sql.matches("CREATE TABLE IF NOT EXISTS \"locks\".\"polylock_").count();
        assert_eq!((printed.code, tables), (Some(0), 6), "{printed:?}");
    }
    let quorum = "quorum:mysql://app@127.0.0.1:1/shop?strategy=lease&table=x|postgres://app@127.0.0.1:1/shop?table=y|redis://127.0.0.1:1";
    let printed = run(quorum, &["migrate", "--print=mysql"]);
    let sql = printed.output.join("\n");
    assert!(
        sql.contains("`x_") && !sql.contains("y_") && !sql.contains("polylock_"),
        "{printed:?}"
    );
    let twice = run(quorum, &["migrate", "--print=mysql", "--table", "shop_locks"]);
    assert_eq!(twice.code, Some(64), "{twice:?}");
    let printed = run(postgres, &["migrate", "--print=mysql"]);
    assert!(printed.output.join("\n").contains("`polylock_fences`"), "{printed:?}");
    let twice = run(postgres, &["migrate", "--print", "--table", "shop_locks"]);
    assert_eq!(twice.code, Some(64), "{twice:?}");
    assert_eq!(run("redis://127.0.0.1:1", &["migrate", "--print"]).code, Some(64));
}

/// On a busy machine, that may be later than after a second.
#[testbed::test]
async fn the_last_message_waits_until_standard_error_takes_it() {
    in_some_run("the message is lost", async || {
        let (mut taken, messages) = pipe().expect("a pipe");
        fill(&messages);
        let running = Running::spawn_with(&mut command("", &["status", "--lock", "a"]), messages);
        sleep(Duration::from_secs(2));
        let mut text = String::new();
        taken.read_to_string(&mut text).expect("it is open");
        assert_eq!(running.end().code, Some(64));
        text.contains("set POLYLOCK_URL")
    })
    .await;
}
