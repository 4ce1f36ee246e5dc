//! The options that name the checks of the torture, made from the table of them.

use super::whole_number;
use clap::builder::ValueParser;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, value_parser};
use monolite_torture::{Amount, CHECKS, Check};

/// The checks that are named, each with its amount, in the order in which they are run.
#[derive(Debug)]
pub(crate) struct Checks {
    pub(crate) named: Vec<(&'static Check, u64)>,
}

impl Args for Checks {
    fn augment_args(command: Command) -> Command {
        command.args(CHECKS.map(option))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Checks::augment_args(command)
    }
}

impl FromArgMatches for Checks {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Checks, clap::Error> {
        let amount = |check: &Check| match check.amount {
            Amount::None => matches.get_flag(check.name).then_some(check.modest),
            _ => {
                let said = matches.get_one(check.name).copied();
                said.or(matches.contains_id(check.name).then_some(check.modest))
            }
        };
        let named = CHECKS.iter().filter_map(|check| Some((*check, amount(check)?)));
        Ok(Checks { named: named.collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Checks::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The option with a check's name.
fn option(check: &Check) -> Arg {
    let about = check.about;
    let help = match check.amount {
        Amount::None => about.to_owned(),
        Amount::Number | Amount::NumberIfSaid => format!("{about} [default: {}]", check.modest),
        Amount::Time | Amount::TimeIfSaid => format!("{about} [default: {}s]", check.modest),
    };
    let option = Arg::new(check.name).long(check.name).help(help);
    let with_amount = |unit, parser| option.clone().value_name(unit).value_parser(parser);
    match check.amount {
        Amount::None => option.action(ArgAction::SetTrue),
        Amount::Number => with_amount("N", ValueParser::new(amount)),
        Amount::NumberIfSaid => with_amount("N", value_parser!(u64).into()).num_args(0..=1),
        Amount::Time => with_amount("T", ValueParser::new(seconds)),
        Amount::TimeIfSaid => with_amount("T", ValueParser::new(seconds)).num_args(0..=1),
    }
}

/// A check that is to do nothing would find nothing.
fn amount(text: &str) -> Result<u64, String> {
    match whole_number(text)? {
        0 => Err("it is at least 1; leave the option out to leave the check out".into()),
        amount => Ok(amount),
    }
}

/// Reads a time as `90`, `90s`, `30m` or `2h` into seconds.
fn seconds(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.strip_suffix(['s', 'm', 'h']) {
        Some(digits) if text.ends_with('m') => (digits, 60),
        Some(digits) if text.ends_with('h') => (digits, 3_600),
        Some(digits) => (digits, 1),
        None => (text, 1),
    };
    let wrong = || format!("{text} is not a time such as 90s, 30m or 2h");
    let number = whole_number(digits).map_err(|_| wrong())?;
    number.checked_mul(unit).filter(|seconds| *seconds > 0).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::{Arguments, Command};
    use clap::Parser as _;

    #[test]
    fn times_have_units() {
        let read: Vec<_> = ["90", "90s", "30m", "2h"].into_iter().map(seconds).collect();
        assert_eq!(read, [Ok(90), Ok(90), Ok(1_800), Ok(7_200)]);
        for wrong in ["", "h", "0s", "-1s", "1d", "99999999999999999999h", "9999999999999999999h"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }

    fn named(arguments: &[&str]) -> Vec<(&'static str, u64)> {
        let line = ["monolite", "torture"].iter().chain(arguments);
        match Arguments::try_parse_from(line).unwrap().command {
            Command::Torture(torture) => {
                let named = torture.checks.named.into_iter();
                named.map(|(check, amount)| (check.name, amount)).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn named_checks_are_run_in_the_order_of_the_table() {
        let line = ["--soak", "2m", "--environment", "--kills", "1_000", "--images", "7"];
        let told = [("images", 7), ("environment", 1), ("kills", 1_000), ("soak", 120)];
        assert_eq!(named(&line), told);
        assert_eq!(named(&["--hostile", "--overload"]), [("hostile", 300), ("overload", 20)]);
        assert_eq!(
            named(&["--hostile", "0", "--overload", "1m"]),
            [("hostile", 0), ("overload", 60)]
        );
        assert_eq!(named(&["--seed", "1"]), []);
    }

    #[test]
    fn a_check_that_does_nothing_is_refused() {
        let torture = |arguments: &[&str]| {
            Arguments::try_parse_from(["monolite", "torture"].iter().chain(arguments))
        };
        for check in CHECKS {
            let option = format!("--{}", check.name);
            let told = torture(&[&option, "0"]).map_err(|error| error.to_string());
            match check.amount {
                Amount::Number => assert!(told.unwrap_err().contains("at least 1"), "{option}"),
                Amount::NumberIfSaid => assert!(told.is_ok(), "{option}"),
                Amount::None | Amount::Time | Amount::TimeIfSaid => {
                    assert!(told.is_err(), "{option}");
                }
            }
        }
    }
}
