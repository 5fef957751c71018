"""Shapes that a chat template refuses, by rendering it."""

from lockstep.checkpoints.chat_template import refused_shapes

# A template that raises on a message of which a condition holds.
EACH = "{%% for m in messages %%}{%% if %s %%}{{ WHAT }}{%% endif %%}{%% endfor %%}"
RAISING = EACH.replace("WHAT", "raise_exception('x')")
SAYING = EACH.replace("WHAT", "m.content }}{%% else %%}{{ '[IMG]'")


def test_shapes_that_a_template_refuses_are_found_by_rendering_it() -> None:
    for template, expected_shapes in (
        (RAISING % "0", ()),
        ("{% generation %}" + RAISING % "0" + "{%- endgeneration -%}", ()),
        (RAISING % "m.role == 'developer'", ("developer",)),
        (RAISING % "m.role == 'system' and not loop.first", ("late_system",)),
        (
            RAISING % "m.role == 'user' and not loop.first and messages[0].role == 'user'",
            ("same_role", "user_after_tool"),
        ),
        # A list that became text was not understood; nor was one anywhere else, there.
        (SAYING % "m.content is string or m.role == 'tool'", ("tool_picture",)),
        (SAYING % "1", ()),
        ("{{ raise_exception('never') }}", None),
        ("{% broken", None),
        ("{{ messages[0].nothing.at.all }}", None),
    ):
        assert refused_shapes(template) == expected_shapes
