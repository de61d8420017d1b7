"""The rows on a GPU (see device_rows.py, which also prints a table)."""

import pytest

from tests.device.gpu import needs_gpu
from tests.target.device_rows import PARTS, outcomes

pytestmark = needs_gpu


@pytest.mark.parametrize("part", PARTS)
def test_rows_agree_with_the_hardware(part):
    from convloom.runtime.device import device_named

    found = list(outcomes(device_named("cuda"), list(PARTS[part]())))
    assert found
    assert [outcome for outcome in found if outcome.reason] == []
