//! One figure of a report by itself, as a notebook shows it.

use super::*;

#[test]
fn figures_stand_alone_and_reach_nothing_around_them() {
    let results = small_results();
    let plan = small_plan(&results);
    let all = source(&plan, Some(&results));
    let report = html(&all);
    for (which, drawn) in [
        (Figure::Heatmap, "class=\"heat\""),
        (Figure::Quadrant, "class=\"field\""),
        (Figure::Frontier, "class=\"curve\""),
        (Figure::Graph, "class=\"solid\""),
    ] {
        let text = figure(&all, which);
        assert!(text.starts_with("<div class=\"loka-figure\"><style>.loka-figure{"), "{which:?}");
        assert!(text.contains("<svg viewBox=") && text.contains(drawn), "{which:?}");
        assert!(!text.contains(":root") && !text.contains("<script"), "{which:?}");
        assert_eq!(text.matches('{').count(), text.matches('}').count(), "{which:?}");
        if which != Figure::Frontier {
            let drawing = &text[text.rfind("<figure").unwrap()..text.rfind("</figure>").unwrap()];
            assert!(report.contains(drawing), "{which:?} is the report's");
        }
    }
    let without = figure(&source(&plan, None), Figure::Frontier);
    assert!(without.contains("A frontier is of results"), "{without}");
}

#[test]
fn a_frontier_shows_where_the_plan_stands_and_text_stays_text() {
    let results = small_results();
    let mut plan = small_plan(&results);
    plan.name = NASTY[0].to_owned();
    let text = figure(&source(&plan, Some(&results)), Figure::Frontier);
    assert!(text.contains("class=\"now\"") && !text.contains("<script>"), "{text}");
    assert!(text.contains("paper, by its MERE") && text.contains("loss-budget, by its budget"));
}
