//! The arguments, variables and files that the command gets, and those that it does not get.

use std::process::Stdio;

use crate::support::{Running, command, redis, run};

#[testbed::test]
async fn one_lock() {
    let server = redis().await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("token");
    let text = "echo \"$POLYLOCK_HELD $POLYLOCK_NAME $POLYLOCK_TTL_MS $POLYLOCK_LOST_FD [$POLYLOCK_URL]\"
        [ \"$POLYLOCK_TOKEN\" = \"$(cat \"$1\")\" ] && echo same";
    let file = file.to_str().expect("UTF-8");
    let name = "orders/42 of\nme";
    let line = [
        "run",
        "--lock",
        name,
        "--ttl",
        "20s",
        "--token-file",
        file,
        "--",
        "sh",
        "-c",
        text,
        "sh",
        file,
    ];
    let ended = run(&server.url(), &line);
    let [first, second, third] = ended.output.as_slice() else {
        panic!("{ended:?}");
    };
    let descriptor: u32 = second
        .rsplit_once(' ')
        .and_then(|(rest, _)| rest.rsplit_once(' '))
        .expect("it has parts")
        .1
        .parse()
        .expect("a number");
    assert!(descriptor >= 3, "{second}");
    assert_eq!(first, "1 orders/42 of");
    assert_eq!(second, &format!("me 20000 {descriptor} []"));
    assert_eq!((third.as_str(), ended.code), ("same", Some(0)));
}

#[testbed::test]
async fn several_locks() {
    let server = redis().await;
    let ended = run(
        &server.url(),
        &[
            "run",
            "--lock",
            "a,b",
            "--lock",
            "c",
            "--shell",
            "echo $POLYLOCK_TOKENS [$POLYLOCK_NAME]",
        ],
    );
    let line = ended.output.join("\n");
    assert!(
        line.starts_with("a%2Cb=") && line.contains(",c=") && line.ends_with(" []"),
        "{ended:?}"
    );
}

#[testbed::test]
async fn readers_and_permits_share() {
    let server = redis().await;
    for how in [&["--read"][..], &["--permits", "1/2"]] {
        let line = |text| [&["run", "--lock", "a", "--try"], how, &["--shell", text]].concat();
        let first = Running::start(&server.url(), &line("echo got; cat"));
        first.wait_for("got");
        let second = Running::start(&server.url(), &line("echo got; cat"));
        second.wait_for("got");
        let writer = run(&server.url(), &["run", "--lock", "a", "--try", "--", "true"]);
        assert_eq!(writer.code, Some(75), "{writer:?}");
        assert_eq!((first.end().code, second.end().code), (Some(0), Some(0)));
    }
}

#[testbed::test]
async fn a_name_is_kept_for_a_minimum_time_also_if_the_command_fails() {
    let server = redis().await;
    let line = ["run", "--lock", "a", "--at-least", "1h", "--try", "--", "false"];
    assert_eq!(run(&server.url(), &line).code, Some(1));
    assert_eq!(run(&server.url(), &line).code, Some(75));
}

#[testbed::test]
async fn standard_input_is_the_command_s() {
    let server = redis().await;
    let mut running = Running::spawn(&mut command(
        "",
        &["--url-file", "-", "run", "--lock", "a", "--", "cat"],
    ));
    running.write(&format!("{}\nthe command's\n", server.url()));
    running.close_input();
    let ended = running.end();
    assert_eq!(
        (ended.code, ended.output),
        (Some(0), vec!["the command's".to_owned()]),
        "{}",
        ended.messages
    );
}

#[testbed::test]
async fn ten_thousand_arguments() {
    let server = redis().await;
    let mut line = vec!["run", "--lock", "a", "--", "sh", "-c", "echo $#", "sh"];
    line.extend(["--lock"; 10_000]);
    assert_eq!(run(&server.url(), &line).output, ["10000"]);
}

#[testbed::test]
async fn no_file_but_its_own_is_open_in_the_command() {
    let server = redis().await;
    let ended = run(
        &server.url(),
        &[
            "run",
            "--lock",
            "a",
            "--shell",
            "ls /proc/self/fd; echo $POLYLOCK_LOST_FD",
        ],
    );
    let (descriptor, open) = ended.output.split_last().expect("lines");
    // One is ls's, to read the folder. The test may have others, which it leaves open.
    assert!(open.contains(descriptor), "{open:?}");
    let bare = std::process::Command::new("ls")
        .arg("/proc/self/fd")
        .output()
        .expect("there is ls");
    let bare = String::from_utf8_lossy(&bare.stdout).lines().count();
    assert_eq!(open.len(), bare + 1, "{open:?}");
}

#[testbed::test]
async fn closed_files_do_no_harm() {
    let server = redis().await;
    let program = env!("CARGO_BIN_EXE_polylock");
    let text = format!("exec <&- >&- 2>&-; {program} run --lock a -- sh -c 'exit 5'");
    let mut shell = std::process::Command::new("sh");
    shell
        .args(["-c", &text])
        .env("POLYLOCK_URL", server.url())
        .stdin(Stdio::null());
    assert_eq!(shell.status().expect("there is a shell").code(), Some(5));
}

#[testbed::test]
async fn a_configuration_file_is_read() {
    let server = redis().await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("locks.toml");
    let text = format!("url = \"{}\"\nttl = \"7s\"\nlabel = \"from the file\"\n", server.url());
    std::fs::write(&file, text).expect("it is ours");
    let file = file.to_str().expect("UTF-8");
    let holder = Running::start(
        "",
        &[
            "--config",
            file,
            "run",
            "-q",
            "--lock",
            "a",
            "--shell",
            "echo $POLYLOCK_TTL_MS; cat",
        ],
    );
    holder.wait_for("7000");
    let status = run("", &["--config", file, "status", "--lock", "a"]);
    assert!(status.output.join("").contains("from the file"), "{status:?}");
}
