//! Values of the gates' options.

use rolling_kv_gates::Spot;
use rolling_kv_gates::ruler::Task;

/// One of RULER's tasks.
pub fn task(text: &str) -> Result<Task, String> {
    Task::of_name(text).ok_or_else(|| {
        let names: Vec<&str> = Task::ALL.iter().map(|task| task.name()).collect();
        format!("{text:?} is none of {}", names.join(", "))
    })
}

/// A depth in percent, or a place by name.
pub fn spot(text: &str) -> Result<Spot, String> {
    match text {
        "window" => return Ok(Spot::Window),
        "tail" => return Ok(Spot::Tail),
        "border" => return Ok(Spot::Border),
        "newest" => return Ok(Spot::Newest),
        _ => {}
    }
    let percent = text.trim_end_matches('%').parse::<f64>();
    match percent {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(Spot::Depth(percent)),
        _ => Err(format!(
            "{text:?} is neither a percentage from 0 to 100 nor window, tail, border or newest"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_and_spots_are_read_and_what_is_none_is_named() {
        assert_eq!(task("vt"), Ok(Task::VariableTracking));
        assert!(task("niah").unwrap_err().contains("niah_single_1"));
        assert_eq!(spot("25"), Ok(Spot::Depth(25.0)));
        assert_eq!(spot("12.5%"), Ok(Spot::Depth(12.5)));
        assert_eq!(spot("border"), Ok(Spot::Border));
        for wrong in ["101", "-1", "NaN", "middle", ""] {
            assert!(spot(wrong).is_err(), "{wrong}");
        }
    }
}
