//! Charts of made-up figures.
use super::*;

fn chart(form: Form, scale: Scale) -> Chart {
    let line = |name: &str, figures: [f64; 3]| Line {
        name: name.into(),
        points: figures.iter().enumerate().map(|(x, y)| Point::exact(x as f64, *y)).collect(),
    };
    Chart {
        id: "some-chart".into(),
        title: "Reads < writes".into(),
        meaning: "More is better".into(),
        x_title: "threads".into(),
        x_marks: Chart::marks([1, 2, 4]),
        y_title: "reads a second".into(),
        scale,
        form,
        lines: vec![line("ours & theirs", [10.0, 2e4, 3e6]), line("raw", [0.0, 1.0, 2.0])],
        ..Chart::default()
    }
}

#[test]
fn every_line_is_drawn_with_its_name_and_said_in_words() {
    for scale in [Scale::Linear, Scale::Logarithmic] {
        let svg = draw::svg(&chart(Form::Lines, scale));
        let drawn = svg.matches("stroke-width=\"2\"").count();
        assert!(drawn >= 4, "{drawn}");
        assert!(svg.contains(">ours &amp; theirs</text>"), "{svg}");
        assert!(svg.contains("<title id=\"some-chart-title\">Reads &lt; writes</title>"), "{svg}");
        assert!(svg.contains("ours &amp; theirs: 10 at 1, 20k at 2, 3M at 4."), "{svg}");
        assert!(svg.ends_with("</svg>"), "{svg}");
    }
}

#[test]
fn bars_are_as_long_as_their_figures() {
    let mut chart = chart(Form::Bars, Scale::Linear);
    chart.lines[0].points[0].y = 100.0;
    chart.lines[0].points[0].high = 100.0;
    chart.lines[1].points[0] = Point::exact(0.0, 50.0);
    chart.lines.iter_mut().for_each(|line| line.points.truncate(1));
    let svg = draw::svg(&chart);
    assert!(svg.contains("width=\"432\"") && svg.contains("width=\"216\""), "{svg}");
}

#[test]
fn a_file_carries_its_style() {
    assert!(draw::file(&chart(Form::Lines, Scale::Linear)).contains("<style>svg.chart{"));
}

#[test]
fn axes_have_short_figures() {
    let written = [1.5, 999.0, 25_000.0, 3e6].map(|figure| Unit::Number.write(figure));
    assert_eq!(written, ["1.5", "999", "25k", "3M"]);
    assert_eq!(Unit::Share.write(0.125), "12.5 %");
}
