# DraftScope for a lecture hall or a public address. docs/HOSTING.md says how.
#
#   docker build -t draftscope .                                    decodes on the processor
#   docker build -t draftscope --build-arg PIP_ARGS="--extra-index-url ADDRESS" .
#                                                                   ADDRESS: an index of torch builds, such as that of a
#                                                                   CUDA version, from PyTorch's installation page
#   docker build -t draftscope --build-arg REQUIREMENTS=requirements-replay.txt --build-arg FETCH=0 .
#                                                                   recorded runs only: no torch, no target, up at once
ARG BASE=python:3.11-slim

FROM ${BASE} AS packages
ARG REQUIREMENTS=requirements.txt
ARG PIP_ARGS=
COPY requirements.txt requirements-replay.txt requirements-scale.txt /tmp/
RUN python -m venv /opt/venv && cd /tmp && \
    /opt/venv/bin/pip install --no-cache-dir --disable-pip-version-check ${PIP_ARGS} -r ${REQUIREMENTS}

FROM ${BASE}
RUN useradd --create-home --uid 1000 reader
COPY --from=packages /opt/venv /opt/venv
WORKDIR /app
COPY app.py LICENSE NOTICE ./
COPY .streamlit .streamlit
COPY assets assets
COPY models models
COPY pages pages
COPY spec_core spec_core
RUN python -m compileall -q app.py models pages spec_core
USER reader
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1 DRAFTSCOPE_HOSTED=1 DRAFTSCOPE_CACHE=/home/reader/cache
ARG FETCH=1
RUN test "$FETCH" = 0 || python -m models.fetch
EXPOSE 8501
HEALTHCHECK --interval=15s --timeout=5s --start-period=20s CMD \
    python -c "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8501/healthz', timeout=4)"
CMD ["python", "-m", "pages.parts.serve", "--server.address", "0.0.0.0", "--server.port", "8501"]
