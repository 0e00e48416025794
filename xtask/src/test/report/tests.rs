use super::*;

fn read(output: &str) -> Report {
    let mut report = Report::default();
    output.lines().for_each(|line| report.line(line));
    report.finish();
    report
}

#[test]
fn several_binaries_are_summed() {
    let report = read(
        "     Running unittests src/lib.rs (target/debug/deps/a-0)\n\
         running 3 tests\ntest a::b ... ok\ntest a::c ... ignored, slow\ntest a::d ... FAILED\n\
         failures:\n\n---- a::d stdout ----\nok\n\n\
         test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.0s\n\
         running 1 test\ntest src/lib.rs - f (line 3) - compile ... ok\n\
         test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.0s\n",
    );
    assert_eq!(report.summary(0), "2 passed, 1 failed, 1 skipped");
    assert_eq!(report.problems(), ["test a::d: what it printed is above"]);
    assert_eq!(report.tests["src/lib.rs - f (line 3) - compile"], Verdict::Passed);
    assert_eq!(report.tests["a::c"], Verdict::Skipped);
}

#[test]
fn a_skip_does_not_count_as_passed() {
    let report = read(
        "running 2 tests\nSKIP redis::fifo: no capability\ntest redis::fifo ... ok\ntest redis::other ... ok\n\
         test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.0s\n",
    );
    assert_eq!(report.summary(2), "1 passed, 0 failed, 3 skipped");
    assert_eq!(report.tests["redis::fifo"], Verdict::Skipped);
    assert_eq!(report.reasons["redis::fifo"], "no capability");
}

#[test]
fn a_test_that_failed_after_its_skip_failed() {
    let report = read(
        "running 1 test\nSKIP a: why\ntest a ... FAILED\n\
         test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.0s\n",
    );
    assert_eq!(report.summary(0), "0 passed, 1 failed, 0 skipped");
}

#[test]
fn output_between_name_and_verdict() {
    let report = read(
        "running 3 tests\ntest a ... SKIP a: why\nok\ntest b ... some output\nFAILED\n\
         test c - should panic ... ok\n\
         test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.0s\n",
    );
    assert_eq!(report.summary(0), "1 passed, 1 failed, 1 skipped");
    assert_eq!(report.tests["a"], Verdict::Skipped);
    assert_eq!(report.tests["b"], Verdict::Failed);
    assert_eq!(report.tests["c"], Verdict::Passed);
}

#[test]
fn a_binary_that_dies_has_failed() {
    let report = read(
        "running 2 tests\ntest a ... ok\nrunning 1 test\ntest b ... ok\n\
         test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.0s\n",
    );
    assert_eq!(report.summary(0), "1 passed, 1 failed, 0 skipped");
    assert_eq!(report.problems(), ["1 test binaries ended without a result"]);
}

#[test]
fn nothing_is_a_problem() {
    assert_eq!(read("    Finished `test` profile\n").problems(), ["no test has passed"]);
}

fn failing(output: &str) -> Report {
    read(&format!(
        "running 2 tests\ntest a ... FAILED\ntest b ... ok\n\nfailures:\n\n---- a stdout ----\n{output}\ntest b ... ok\n\n\n\
         failures:\n    a\n\n\
         test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.0s\n\
         error: test failed, to rerun pass `-p x --test y`\n"
    ))
}

#[test]
fn a_test_that_passes_alone_is_unsteady() {
    let mut report = failing("not within 10s");
    assert_eq!(report.to_repeat(), Some(vec!["a".into()]));
    let alone = "running 1 test\ntest a ... ok\n\
                 test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 1 filtered out; finished in 0.0s\n";
    assert!(report.settle(&read(alone)));
    assert_eq!(report.summary(0), "2 passed, 0 failed, 0 skipped");
    assert_eq!(report.problems(), [""; 0]);
    assert_eq!(report.unsteady, ["a"]);
}

/// It failed before it could tell, as when its server was not ready.
#[test]
fn a_failed_test_that_does_not_apply_alone_is_skipped() {
    let mut report = failing("no tables within 60s");
    let alone = "running 1 test\nSKIP a: undeclared\ntest a ... ok\n\
                 test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 1 filtered out; finished in 0.0s\n";
    assert!(report.settle(&read(alone)));
    assert_eq!(report.summary(0), "1 passed, 0 failed, 1 skipped");
    assert_eq!(
        (report.unsteady.as_slice(), report.reasons["a"].as_str()),
        (["a".to_owned()].as_slice(), "undeclared")
    );
}

#[test]
fn a_test_that_fails_alone_has_failed() {
    let mut report = failing("\nthread 'a' (7) panicked at x.rs:1:2:\nnot within 10s\nstack backtrace:");
    assert!(!report.settle(&failing("again")));
    assert!(!report.settle(&Report::default()));
    assert_eq!(report.problems(), ["test a: not within 10s"]);
    assert_eq!(report.summary(0), "1 passed, 1 failed, 0 skipped");
}

#[test]
fn of_two_that_failed_the_one_that_passes_alone_is_unsteady() {
    let both = "running 2 tests\ntest a ... FAILED\ntest b ... FAILED\n\
                test result: FAILED. 0 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.0s\n";
    let alone = both
        .replace("a ... FAILED", "a ... ok")
        .replace("0 passed; 2", "1 passed; 1");
    let mut report = read(both);
    assert!(!report.settle(&read(&alone)));
    assert_eq!(report.unsteady, ["a"]);
    assert_eq!(report.problems(), ["test b: what it printed is above"]);
    assert_eq!(report.summary(0), "1 passed, 1 failed, 0 skipped");
}

#[test]
fn what_no_slow_machine_explains_is_not_repeated() {
    assert_eq!(failing("x.rs:1: SAFETY: 2 were followed by 1").to_repeat(), None);
    let mut crashed = failing("not within 10s");
    crashed.line("error: test failed, to rerun pass `-p x --test z`");
    assert_eq!(crashed.to_repeat(), None, "another binary crashed after its last test");
    let died = read("running 1 test\ntest a ... FAILED\n");
    assert_eq!(died.to_repeat(), None);
    assert_eq!(read("running 0 tests\n").to_repeat(), None);
    let lines: String = (0..=MOST_UNSTEADY)
        .map(|at| format!("test t{at} ... FAILED\n"))
        .collect();
    let printed: String = (0..=MOST_UNSTEADY)
        .map(|at| format!("---- t{at} stdout ----\nlate\n"))
        .collect();
    let failed = MOST_UNSTEADY + 1;
    let many = read(&format!(
        "running {failed} tests\n{lines}\nfailures:\n\n{printed}\n\
         test result: FAILED. 0 passed; {failed} failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.0s\n"
    ));
    assert_eq!(many.to_repeat(), None);
}

/// As a test prints it whose task panics: the panic is the task's, and the test repeats its message.
#[test]
fn a_failed_assertion_of_safety_is_not_repeated() {
    let holders = 2;
    let task = std::panic::catch_unwind(|| testbed::assert_safe!(holders <= 1, "{holders} have it"));
    let message = task.expect_err("it panics").downcast::<String>().expect("a text");
    let said = format!("\nthread 'tokio-worker' (7) panicked at x.rs:1:2:\n{message}\nnote: run with a backtrace");
    let report = failing(&said);
    assert_eq!(report.reason("a"), "SAFETY: 2 have it");
    assert_eq!(report.to_repeat(), None);
    let unwrapped = format!("called `Result::unwrap()` on an `Err` value: JoinError::Panic(Id(5), {message:?}, ...)");
    assert_eq!(failing(&unwrapped).to_repeat(), None);
}

/// A test may plan panics of other threads, before it fails and afterwards.
#[test]
fn the_reason_is_the_panic_of_the_tests_own_thread() {
    let panic = |thread, message| format!("\nthread '{thread}' (7) panicked at x.rs:1:2:\n{message}\n");
    let planned = panic("tokio-rt-worker", "planned");
    let report = failing(&format!("{planned}{}{planned}", panic("a", "late")));
    assert_eq!(report.reason("a"), "late");
}

#[test]
fn the_worse_of_two_counts() {
    let once = |verdict| {
        read(&format!(
            "running 1 test\ntest a ... {verdict}\n\
             test result: x. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.0s\n"
        ))
    };
    let mut report = once("FAILED");
    report.add(&once("ok"));
    assert_eq!(report.tests["a"], Verdict::Failed);
}
